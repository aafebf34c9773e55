// SPDX-License-Identifier: Apache-2.0
// Products of bf16 pairs against plain loops.
#include "cpu_ref/primitives/bf16_matmul.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu_ref/kernels/cpu_kernels.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/primitives/amx_matmul.hpp"
#include "cpu_ref/primitives/tile.hpp"
#include "cpu_ref/primitives/tile_registers.hpp"
#include "tests/cpu_ref/instruction_sets.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

bool can_test_pairs() {
  if (multiplies_bf16_pairs()) return true;
  MESSAGE("skipped: bf16 pairs, this processor has no AVX-512 BF16");
  return false;
}

/// Both halves of a word.
float half_of(float word, int upper) {
  return bf16_to_fp32(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(word) >> 16 * upper));
}

Tile random_tile(int rows, int cols, testing::ProblemGenerator& random) {
  Tile tile(rows, cols);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) tile.row(r)[c] = static_cast<float>(random.between(-4000, 4000)) / 1024.0f;
  }
  return tile;
}

/// The same, of numbers that bf16 holds.
Tile random_bf16_tile(int rows, int cols, testing::ProblemGenerator& random) {
  Tile tile = random_tile(rows, cols, random);
  round_to(ElementType::bf16, tile.data(), static_cast<std::int64_t>(tile.size()));
  return tile;
}

TEST_CASE("pairs of rows hold both, and zeros behind an odd row") {
  if (!can_test_pairs()) return;
  for (unsigned seed = 0; seed < 50; ++seed) {
    testing::ProblemGenerator random(seed);
    const int rows = random.between(1, 9), cols = random.between(1, 70);
    CAPTURE(seed);
    Tile values = random_bf16_tile(rows, cols, random), words(words_of(rows), cols);
    values.row(0)[0] = std::numeric_limits<float>::quiet_NaN();
    if (cols > 2) values.row(0)[1] = -std::numeric_limits<float>::infinity();
    if (cols > 2) values.row(0)[2] = 0x1p-130f;
    words.fill(1.0f);
    pair_float_rows(values, rows, cols, words);
    for (int row = 0; row < 2 * words_of(rows); ++row) {
      for (int col = 0; col < cols; ++col) {
        const float value = row < rows ? values.row(row)[col] : 0.0f;
        const float paired = half_of(words.row(row / 2)[col], row % 2);
        CHECK((std::isnan(value) ? std::isnan(paired) : paired == value));
      }
    }
  }
}

TEST_CASE("softmax into pairs holds P of the softmax in place, rounded to bf16, and the same sums") {
  if (!can_test_pairs()) return;
  testing::for_each_instruction_set([] {
    for (unsigned seed = 0; seed < 100; ++seed) {
      testing::ProblemGenerator random(seed);
      const int keys = random.between(1, 21), queries = random.between(1, 40);
      const SoftmaxScale scale{0.01f * static_cast<float>(random.between(1, 300))};
      CAPTURE(seed);
      Tile scores = random_tile(keys, queries, random), words(words_of(keys), queries);
      if (keys > 2) scores.row(1)[0] = -std::numeric_limits<float>::infinity();
      if (random.chance(0.2)) scores.row(0)[0] = 1e9f;  // whose multiple of the scale is not exact
      Tile probs(keys, queries);
      std::copy_n(scores.data(), scores.size(), probs.data());
      words.fill(1.0f);
      Tile stats[2][3];  // of each: maximum, sum, rescale
      for (auto& of : stats) {
        for (Tile& tile : of) tile = Tile(1, queries);
        of[0].fill(-3.0f);
        of[1].fill(0.5f);
      }
      online_softmax(probs.data(), probs.stride(), keys, queries, scale, stats[0][0].data(),
                     stats[0][1].data(), stats[0][2].data());
      online_softmax_in_pairs(scores.data(), scores.stride(), keys, queries, scale, stats[1][0].data(),
                              stats[1][1].data(), stats[1][2].data(), words.data(), words.stride());
      for (int i = 0; i < 3; ++i) {
        for (int col = 0; col < queries; ++col) CHECK(stats[0][i].data()[col] == stats[1][i].data()[col]);
      }
      for (int key = 0; key < 2 * words_of(keys); ++key) {
        for (int col = 0; col < queries; ++col) {
          const float p = key < keys ? bf16_to_fp32(fp32_to_bf16(probs.row(key)[col])) : 0.0f;
          const float paired = half_of(words.row(key / 2)[col], key % 2);
          CHECK((paired == p || (paired == 0.0f && p < 0x1p-126f)));  // products take those as 0 anyway
        }
      }
    }
  });
}

TEST_CASE("rows of bf16 are paired, a null one as zeros") {
  if (!can_test_pairs()) return;
  std::vector<std::uint16_t> first(37), second(37);
  for (std::uint16_t i = 0; i < 37; ++i) first[i] = i + 1, second[i] = 0x4000 + i;
  std::vector<float> words(37);
  const auto check = [&](const std::uint16_t* a, const std::uint16_t* b) {
    pair_rows(a, b, 37, words.data());
    for (std::size_t i = 0; i < 37; ++i) {
      const std::uint32_t lower = a == nullptr ? 0 : a[i], upper = b == nullptr ? 0 : b[i];
      CHECK(std::bit_cast<std::uint32_t>(words[i]) == (upper << 16 | lower));
    }
  };
  check(first.data(), second.data());
  check(first.data(), nullptr);
  check(nullptr, second.data());
  check(nullptr, nullptr);
}

/// Operands of a product, in words, with NaN behind them, and what it is added to.
struct Operands {
  int rows, cols, words;
  bool transposed;
  Accumulate accumulate;
  Tile a, b, before;

  explicit Operands(testing::ProblemGenerator& random)
      : rows(size(random)),
        cols(size(random)),
        words(size(random)),
        transposed(random.chance(0.5)),
        accumulate(random.chance(0.5) ? Accumulate::yes : Accumulate::no),
        a(random_words(transposed ? words : rows, transposed ? rows : words, random)),
        b(random_words(words, cols, random)),
        before(random_tile(rows + 1, cols, random)) {}

  /// What multiply(), as bf16_tile_matmul(), makes of them.
  template <typename Multiply>
  Tile product(Multiply&& multiply) const {
    Tile c(rows + 1, cols);
    std::copy_n(before.data(), before.size(), c.data());
    multiply(transposed ? a.transposed() : a.by_rows(), b.data(), b.stride(), c.data(), c.stride(), rows,
             cols, words, accumulate);
    return c;
  }

 private:
  static int size(testing::ProblemGenerator& random) {
    return random.chance(0.5) ? 16 * random.between(1, 5) : random.between(1, 70);
  }
  static Tile random_words(int rows, int cols, testing::ProblemGenerator& random) {
    Tile tile(rows + 1, cols);
    tile.fill(std::numeric_limits<float>::quiet_NaN());
    const Tile values = random_bf16_tile(2 * rows, cols, random);
    pair_float_rows(values, 2 * rows, cols, tile);
    return tile;
  }
};

template <typename Multiply>
void check_product(const Operands& given, Multiply&& multiply) {
  const Tile c = given.product(multiply);
  for (int r = 0; r < given.rows; ++r) {
    for (int col = 0; col < given.cols; ++col) {
      double sum = given.accumulate == Accumulate::yes ? static_cast<double>(given.before.row(r)[col]) : 0.0;
      double abs_sum = std::fabs(sum);
      for (int k = 0; k < 2 * given.words; ++k) {
        const float left = given.transposed ? given.a.row(k / 2)[r] : given.a.row(r)[k / 2];
        const double term = static_cast<double>(half_of(left, k % 2)) *
                            static_cast<double>(half_of(given.b.row(k / 2)[col], k % 2));
        sum += term;
        abs_sum += std::fabs(term);
      }
      CHECK(std::fabs(static_cast<double>(c.row(r)[col]) - sum) <= 2 * given.words * 0x1p-24 * abs_sum);
    }
  }
  for (int col = 0; col < given.cols; ++col) {
    CHECK(c.row(given.rows)[col] == given.before.row(given.rows)[col]);
  }
}

TEST_CASE("products of pairs of all sizes, by rows and transposed, fresh and accumulated") {
  if (!can_test_pairs()) return;
  for (unsigned seed = 0; seed < 200; ++seed) {
    testing::ProblemGenerator random(seed);
    CAPTURE(seed);
    check_product(Operands(random), bf16_tile_matmul);
  }
}

#ifdef __x86_64__
/// AMX's instructions, as Intel's manual states them. Products of two bf16 numbers are exact in fp32.
struct ModelRegisters {
  static inline float registers[8][kRegisterRows][kRegisterWords];

  template <int r>
  static void clear() {
    std::memset(registers[r], 0, sizeof registers[r]);
  }
  template <int r>
  static void load(const float* from, std::ptrdiff_t stride) {
    for (int row = 0; row < kRegisterRows; ++row) {
      std::memcpy(registers[r][row], from + row * stride, sizeof registers[r][row]);
    }
  }
  template <int r>
  static void store(float* to, std::ptrdiff_t stride) {
    for (int row = 0; row < kRegisterRows; ++row) {
      std::memcpy(to + row * stride, registers[r][row], sizeof registers[r][row]);
    }
  }
  template <int c, int a, int b>
  static void add_products() {
    for (int row = 0; row < kRegisterRows; ++row) {
      for (int col = 0; col < kRegisterWords; ++col) {
        float sums[2] = {0.0f, 0.0f};  // of the lower halves, and of the upper ones
        for (int word = 0; word < kRegisterWords; ++word) {
          for (int half = 0; half < 2; ++half) {
            sums[half] += half_of(registers[a][row][word], half) * half_of(registers[b][word][col], half);
          }
        }
        registers[c][row][col] += sums[0] + sums[1];
      }
    }
  }
};

TEST_CASE("products in tile registers, of which a model stands for AMX's") {
  if (!can_test_pairs()) return;
  RegisterMatmul<ModelRegisters> multiply;
  for (unsigned seed = 0; seed < 50; ++seed) {
    testing::ProblemGenerator random(seed);
    CAPTURE(seed);
    check_product(Operands(random), multiply);
  }
}

TEST_CASE("AMX gives the bits of its model") {
  if (!multiplies_by_amx()) {
    MESSAGE("skipped: products by AMX, which this processor has not");
    return;
  }
  AmxMatmul amx;
  RegisterMatmul<ModelRegisters> model;
  for (unsigned seed = 0; seed < 50; ++seed) {
    testing::ProblemGenerator random(seed);
    CAPTURE(seed);
    const Operands given(random);
    check_product(given, amx);
    const Tile by_amx = given.product(amx), expected = given.product(model);
    for (int row = 0; row < given.rows; ++row) {
      CHECK(std::memcmp(by_amx.row(row), expected.row(row), sizeof(float) * given.cols) == 0);
    }
  }
}
#endif

TEST_CASE("bf16 rows that lie at odd places give the bits of those side by side") {
  for (const int head_dim : {7, 64}) {
    const AttentionProblem p{.heads = 2,
                             .heads_kv = 2,
                             .seqlen_q = 45,
                             .seqlen_k = 70,
                             .head_dim = head_dim,
                             .dtype = ElementType::bf16};
    TensorSet whole(p), apart(p);
    fill_random_inputs(whole, Direction::forward);
    std::vector<std::vector<std::uint16_t>> memory;
    for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
      const Tensor& from = whole[name];
      const std::int64_t rows = from.shape().rows, stride = head_dim + 3;
      auto& to = memory.emplace_back(static_cast<std::size_t>(2 * rows * stride + 1), 0x7FC0);  // NaN between
      for (std::int64_t row = 0; row < 2 * rows; ++row) {
        std::memcpy(&to[static_cast<std::size_t>(1 + row * stride)],
                    static_cast<const std::uint16_t*>(from.data()) + row * head_dim,
                    static_cast<std::size_t>(head_dim) * 2);
      }
      apart[name] =
          Tensor::view(from.shape(), ElementType::bf16, &to[1], {2 * rows * stride, rows * stride, stride});
    }
    for (TensorSet* tensors : {&whole, &apart})
      flash2_forward(ProgramOptions::with_tile({16, 24}), *tensors, nullptr);
    const auto bytes = static_cast<std::size_t>(whole[TensorName::out].bytes());
    CHECK(std::memcmp(whole[TensorName::out].data(), apart[TensorName::out].data(), bytes) == 0);
  }
}

}  // namespace
}  // namespace tilescope
