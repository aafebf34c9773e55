// SPDX-License-Identifier: Apache-2.0
// Descales of fp8: what they mean, that the judge sees wrong ones, and who takes which.
#include "cpu_ref/numeric/descales.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <clocale>
#include <cmath>
#include <locale>
#include <utility>

#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/judge/sampled_rows.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"

namespace tilescope {
namespace {

using enum TensorName;
constexpr TileShape kBlock{16, 24};
constexpr Descale kByChance{Descale::From::random}, kOfData{Descale::From::data};

AttentionProblem descaled(const Descales& descales, ElementType dtype = ElementType::fp8e4m3) {
  return {.batch = 2,
          .heads = 4,
          .heads_kv = 2,
          .seqlen_q = 53,
          .seqlen_k = 77,
          .head_dim = 32,
          .dtype = dtype,
          .causal = true,
          .descales = descales};
}
const Kernel& flash2() { return cpu_kernels()[2]; }

std::vector<TensorName> wrong_outputs(const Verdict& verdict) {
  std::vector<TensorName> names;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) names.push_back(tensor.tensor);
  }
  return names;
}

TEST_CASE(
    "stored elements times descales are the values: attention is that of fp32 tensors which hold them") {
  for (const TileShape block : {TileShape{0, 0}, kBlock}) {
    const AttentionProblem problem = descaled({kByChance, kByChance, kByChance, block});
    TensorSet stored(problem);
    fill_random_inputs(stored, Direction::forward);
    AttentionProblem plain = problem;
    plain.dtype = ElementType::fp32;
    plain.descales = {};
    TensorSet values(plain);
    for (const TensorName name : {q, k, v}) {
      values.allocate(name);
      const Tensor& numbers = stored.descales(name);
      const std::int64_t heads = stored[name].shape().heads, rows = stored[name].shape().rows;
      const int block_rows = block == kBlock ? name == q ? kBlock.block_m : kBlock.block_n : 1 << 20;
      for (std::int64_t i = 0; i < stored[name].shape().elements(); ++i) {
        const std::int64_t row = i / 32 % rows, head = i / 32 / rows % heads, batch = i / 32 / rows / heads;
        const std::int64_t of_head = block == kBlock || name != q ? head : head / 2;
        const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
        const std::int64_t at = (batch * numbers.shape().heads + of_head) * blocks + row / block_rows;
        REQUIRE(numbers.shape().elements() > at);
        const float factor = numbers.floats()[at];
        CHECK(factor >= 0.5f);
        CHECK(factor <= 2.0f);
        values[name].floats()[i] = stored[name].get(i) * factor;
      }
    }
    const ExactAttention by_descales = exact_attention(stored, Direction::forward);
    const ExactAttention by_values = exact_attention(values, Direction::forward);
    for (std::size_t i = 0; i < by_values.out.size(); ++i) {
      CHECK(std::abs(by_descales.out[i] - by_values.out[i]) < 1e-5);
    }
  }
}

TEST_CASE("descales of data store the largest magnitude of each block as the type's largest number") {
  for (const ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
    const float largest = dtype == ElementType::fp8e4m3 ? 448.0f : 57344.0f;
    const AttentionProblem problem = descaled({kOfData, kOfData, {}, kBlock}, dtype);
    TensorSet tensors(problem);
    fill_random_inputs(tensors, Direction::forward, InputKind::outlier);
    CHECK(tensors.descales(v).empty());
    for (std::int64_t first = 0; first < 77; first += kBlock.block_n) {
      float most = 0;
      for (std::int64_t i = first * 32; i < std::min<std::int64_t>(77, first + kBlock.block_n) * 32; ++i) {
        most = std::max(most, std::abs(tensors[k].get(i)));
      }
      CHECK(most == largest);
    }
    Tensor values({2, 2, 77, 32}, ElementType::fp32);
    std::fill_n(values.floats(), values.shape().elements(), 0.0f);
    values.floats()[0] = 3.0f;
    store_input(tensors, k, values);
    CHECK(tensors[k].get(0) * tensors.descale(k, 0, 0, 0) == doctest::Approx(3));
    CHECK(tensors.descale(k, 0, 0, kBlock.block_n) == 1.0f);  // of a block of zeros
  }
}

TEST_CASE("descales of a tile that are 0 make its scores and values 0, and leave the others as they are") {
  AttentionProblem problem = descaled({kByChance, kByChance, kByChance, kBlock});
  for (const Fp8Sums sums : {Fp8Sums::two_level, Fp8Sums::fast}) {
    TensorSet inputs(problem);
    fill_random_inputs(inputs, Direction::forward);
    inputs.descales(k).floats()[1] = inputs.descales(v).floats()[1] = 0.0f;
    Reference reference(std::move(inputs), Direction::forward);
    ProgramOptions options = flash2().default_options(problem);
    options.set_tile(Direction::forward, kBlock);
    options.fp8_sums = sums;
    reference.run(flash2(), options, Direction::forward);
    CHECK(wrong_outputs(reference.judge(Direction::forward)).empty());
  }
}

/// cpu:flash2 that is handed other descales than the judge knows.
template <TensorName of, bool swapped>
void run_with_wrong_descales(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                             TileObserver* observer) {
  Tensor right = std::exchange(tensors.descales(of), Tensor());
  if (swapped) {
    tensors.descales(of) = right.as(ElementType::fp32);
    std::reverse(tensors.descales(of).floats(), tensors.descales(of).floats() + right.shape().elements());
  }
  flash2().run(options, direction, tensors, observer);
  tensors.descales(of) = std::move(right);
}
template <TensorName of>
void check_wrong_descales_are_seen(Reference& reference, const ProgramOptions& options) {
  for (const auto run : {run_with_wrong_descales<of, false>, run_with_wrong_descales<of, true>}) {
    Kernel wrong = flash2();
    wrong.run = run;
    CAPTURE(to_string(of));
    CHECK(wrong_outputs(reference.judge(wrong, options, Direction::forward)) ==
          (of == v ? std::vector{out} : std::vector{out, lse}));
    CHECK(locate(reference, wrong, options, Direction::forward).has_value());
  }
}

TEST_CASE("right kernels pass with descales, wrong descales are seen and located") {
  for (const Descale from : {kByChance, kOfData}) {
    for (const TileShape block : {TileShape{0, 0}, kBlock}) {
      const AttentionProblem problem = descaled({from, from, from, block});
      CAPTURE(describe(problem));
      Reference reference(problem, InputKind::outlier, Direction::forward);
      ProgramOptions options = ProgramOptions::with_tile(kBlock);
      for (const Fp8Sums sums : {Fp8Sums::fp32, Fp8Sums::two_level, Fp8Sums::fast}) {
        options.fp8_sums = sums;
        CHECK(wrong_outputs(reference.judge(flash2(), options, Direction::forward)).empty());
        const auto where = locate(reference, flash2(), options, Direction::forward);
        CHECK((where ? describe(*where, problem) : "nowhere") == "nowhere");
      }
      check_wrong_descales_are_seen<q>(reference, options);
      check_wrong_descales_are_seen<k>(reference, options);
      check_wrong_descales_are_seen<v>(reference, options);
    }
  }
}

TEST_CASE("sampled rows are judged with descales that the problem tells, others are refused") {
  for (const TileShape block : {TileShape{0, 0}, kBlock}) {
    const AttentionProblem problem = descaled({kByChance, kByChance, kByChance, block});
    TensorSet tensors(problem);
    fill_random_inputs(tensors, Direction::forward);
    ProgramOptions options = ProgramOptions::with_tile(kBlock);
    options.fp8_sums = Fp8Sums::two_level;
    const auto judged = [&] {
      RowJudge judge(problem, Algorithm::flash2, Direction::forward, 24, Fp8Sums::two_level);
      judge.forward([&](TensorName name, std::int64_t head) { return copy_head(tensors[name], head); });
      return wrong_outputs(judge.verdict());
    };
    flash2().run(options, Direction::forward, tensors, nullptr);
    CHECK(judged().empty());
    run_with_wrong_descales<k, false>(options, Direction::forward, tensors, nullptr);
    REQUIRE(!judged().empty());
    CHECK(judged().back() == lse);  // of many keys, out hardly moves
  }
  CHECK_THROWS_WITH_AS(RowJudge(descaled({.q = kOfData}), Algorithm::flash2, Direction::forward, 4),
                       "descale_q = data: must be a number or random where inputs are made by chance and not "
                       "kept, as on a device",
                       BadInput);
}

/// Decimals with a comma, as in many countries.
struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

TEST_CASE("descales are written and read with a point, whatever the locale") {
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const std::string c_before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "sv_SE.UTF-8"}) {
    if (std::setlocale(LC_NUMERIC, name) != nullptr) break;
  }
  CHECK(to_string(Descale{.value = 0.5}) == "0.5");
  CHECK(parse_descale("descale_q", "0.5") == Descale{.value = 0.5});
  CHECK_THROWS_AS(parse_descale("descale_q", "0,5"), BadInput);
  CHECK_THROWS_AS(parse_descale("descale_q", "0x1p-1"), BadInput);  // strtod, which asks the locale, reads it
  std::setlocale(LC_NUMERIC, c_before.c_str());
  std::locale::global(before);
}

TEST_CASE("descales are refused where they mean nothing and by kernels that take none") {
  CHECK_THROWS_WITH_AS(validate(descaled({.v = {.value = 2}}, ElementType::bf16)),
                       "descale_v = 2: must be left out: descales are of fp8, not of bf16", BadInput);
  CHECK_THROWS_AS(validate(descaled({.block = kBlock}, ElementType::fp16)), BadInput);
  CHECK_THROWS_AS(validate(descaled({.q = {.value = -1}})), BadInput);
  CHECK_THROWS_AS(validate(descaled({.q = kByChance, .block = {16, 0}})), BadInput);
  CHECK_THROWS_WITH_AS(parse_descale("descale_k", "2x"),
                       "descale_k = '2x': must be a number in 1e-6 ... 1e6, random or data", BadInput);
  CHECK(describe(descaled({{.value = 0.5}, kByChance, {}, kBlock}))
            .ends_with("causal descales q=0.5 k=random of 16x24"));

  const AttentionProblem of_heads = descaled({.q = kByChance});
  const AttentionProblem of_blocks = descaled({.q = kByChance, .block = kBlock});
  const Kernel& flash1 = cpu_kernels()[1];
  const auto refusal = [](const Kernel& kernel, const AttentionProblem& problem, TileShape tile) {
    ProgramOptions options = kernel.default_options(problem);
    options.set_tile(tile);
    return kernel.refusal(problem, Direction::forward, options).value_or("");
  };
  CHECK(refusal(flash1, of_heads, kBlock).starts_with("takes no descales"));
  CHECK(refusal(flash2(), of_heads, {8, 8}).empty());
  CHECK(refusal(flash2(), of_blocks, kBlock).empty());
  CHECK(refusal(flash2(), of_blocks, {8, 8}) ==
        "takes descales of heads, or of its tiles, descale_block 8x8, not 16x24");
  CHECK(flash2().default_options(of_blocks)[PassName::forward].tile == kBlock);
}

}  // namespace
}  // namespace tilescope
