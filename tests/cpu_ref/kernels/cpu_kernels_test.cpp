// SPDX-License-Identifier: Apache-2.0
// The CPU kernels against exact attention, over random problems and at the edges of what they accept.
#include <doctest/doctest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "tests/cpu_ref/instruction_sets.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

using testing::KernelCase;

constexpr int kRandomProblems = 80;

/// Runs every kernel on the problem and judges what it can do.
void check_all_kernels(const AttentionProblem& p, TileShape tile, InputKind kind = InputKind::normal,
                       Direction deepest = Direction::backward) {
  const Direction direction = is_fp8(p.dtype) ? Direction::forward : deepest;
  Reference reference(p, kind, direction);
  CAPTURE(describe(p));
  for (const KernelCase& c : testing::kernel_cases()) {
    CAPTURE(c.name());
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.backward = c.backward;
    for (const TensorVerdict& tensor : reference.judge(*c.kernel, options, direction).tensors) {
      CHECK_MESSAGE(tensor.passed, to_string(tensor.tensor), " is off by ", tensor.error.max_abs, ", bound ",
                    tensor.bound);
    }
  }
}

TEST_CASE("every kernel is close to exact attention on random problems") {
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(40);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[seed % std::size(kElementTypes)];
    if (random.chance(0.3)) p.dropout = 0.1 * random.between(1, 8);
    if (random.chance(0.3)) p.softmax_scale = random.between(-3, 3) * 0.1;
    if (seed % 4 == 1) p = random.masked(p);
    if (seed % 4 == 3) p = random.padded(p);
    CAPTURE(seed);
    CAPTURE(tile.block_m);
    CAPTURE(tile.block_n);
    check_all_kernels(p, tile);
  }
}

/// Every bit of what a kernel writes.
std::vector<std::vector<std::byte>> bits_of(const TensorSet& tensors) {
  std::vector<std::vector<std::byte>> bits;
  for (const TensorName name :
       {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
    const auto* bytes = static_cast<const std::byte*>(tensors[name].data());
    bits.emplace_back(bytes, bytes + tensors[name].bytes());
  }
  return bits;
}

TEST_CASE("a masked tile that is cut finer gives the same bits, whatever its hidden parts hold") {
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = random.between(2, 5);
    const TileShape tile = random.tile_of_slices(slices, 8);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[seed % 3];
    if (random.chance(0.3)) p.dropout = 0.25;
    if (random.chance(0.3)) p.softmax_scale = random.between(-3, 3) * 0.1;
    if (seed % 4 == 3) p = random.padded(p);
    CAPTURE(seed);
    CAPTURE(slices);
    CAPTURE(describe(p));
    for (const testing::KernelCase& c : testing::kernel_cases()) {
      if (c.kernel->smallest_part == 0) continue;
      CAPTURE(c.name());
      ProgramOptions options = ProgramOptions::with_tile(tile);
      TensorSet whole(p), cut(p);
      for (TensorSet* tensors : {&whole, &cut}) {
        fill_random_inputs(*tensors, Direction::backward);
        testing::run_kernel(c, options, Direction::backward, *tensors);
        options.diagonal_slices = slices;
      }
      CHECK(bits_of(whole) == bits_of(cut));
    }
  }
}

TEST_CASE("every kernel is close to exact attention on every instruction set") {
  testing::for_each_instruction_set([] {
    for (const ElementType dtype : kElementTypes) {
      check_all_kernels({.heads = 2,
                         .heads_kv = 1,
                         .seqlen_q = 45,
                         .seqlen_k = 70,
                         .head_dim = 37,
                         .dtype = dtype,
                         .window_left = 30,
                         .window_right = 9,
                         .dropout = 0.2},
                        {32, 24});
    }
  });
}

TEST_CASE("head_dim 1, odd ones and 256, lengths from 1") {
  for (int head_dim : {1, 2, 17, 33, 80, 256}) {
    for (int seqlen : {1, 65}) {
      AttentionProblem p{
          .heads = 2, .seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = head_dim, .causal = true};
      check_all_kernels(p, {64, 64});
      p.seqlen_k = 66 - seqlen;
      p.dtype = ElementType::bf16;
      check_all_kernels(p, {64, 64});
    }
  }
}

TEST_CASE("any finite scale") {
  for (double scale : {0.0, -0.0, 1e-300, 1e-30, -0.3, 30.0, -30.0}) {
    AttentionProblem p{
        .heads = 2, .heads_kv = 1, .seqlen_q = 37, .seqlen_k = 50, .head_dim = 24, .window_left = 20};
    p.softmax_scale = scale;
    const bool vanishes = scale == 1e-300;  // in fp32, and the gradients with it
    check_all_kernels(p, {16, 16}, InputKind::normal, vanishes ? Direction::forward : Direction::backward);
  }
  // One-hot softmax: the output is the value of the best key, as long as fp32 scores tell which that is.
  for (double scale : {1e6, -1e12, 1e30, 1e300, -1e300}) {
    AttentionProblem p{.seqlen_q = 37, .seqlen_k = 50, .head_dim = 24};
    p.softmax_scale = scale;
    check_all_kernels(p, {16, 16}, InputKind::normal, Direction::forward);
  }
}

TEST_CASE("outliers, equal rows and a huge scale of the inputs") {
  for (InputKind kind : {InputKind::outlier, InputKind::equal_rows}) {
    for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
      check_all_kernels({.heads = 2, .seqlen_q = 70, .seqlen_k = 90, .head_dim = 32, .dtype = dtype},
                        {32, 32}, kind);
    }
  }
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    AttentionProblem p{.seqlen_q = 70, .seqlen_k = 90, .head_dim = 64, .dtype = dtype};
    for (const KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      TensorSet tensors(p);
      fill_random_inputs(tensors, Direction::backward, InputKind::huge_scale);
      testing::run_kernel(c, ProgramOptions::with_tile({32, 32}), Direction::backward, tensors);
      for (TensorName name :
           {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
        for (double value : to_fp64(tensors[name])) REQUIRE(std::isfinite(value));
      }
    }
  }
}

TEST_CASE("rows that see no key: O = 0, LSE = -inf, zero gradients") {
  for (ElementType dtype : kElementTypes) {
    AttentionProblem p{.heads = 2,
                       .heads_kv = 1,
                       .seqlen_q = 40,
                       .seqlen_k = 9,
                       .head_dim = 20,
                       .dtype = dtype,
                       .causal = true};
    const Direction direction = is_fp8(dtype) ? Direction::forward : Direction::backward;
    for (const KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      TensorSet tensors(p);
      fill_random_inputs(tensors, direction);
      testing::run_kernel(c, ProgramOptions::with_tile({16, 4}), direction, tensors);
      const Tensor& out = tensors[TensorName::out];
      for (int head = 0; head < 2; ++head) {
        for (int row = 0; row < 31; ++row) {
          REQUIRE(tensors[TensorName::lse].get(tensors[TensorName::lse].row_index(0, head, row)) ==
                  -std::numeric_limits<float>::infinity());
          for (int col = 0; col < 20; ++col) {
            REQUIRE(out.get(out.row_index(0, head, row) + col) == 0.0f);
            if (direction == Direction::backward) {
              REQUIRE(tensors[TensorName::dq].get(out.row_index(0, head, row) + col) == 0.0f);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a NaN in the inputs reaches every result that depends on it") {
  for (TensorName poisoned : {TensorName::q, TensorName::k, TensorName::v, TensorName::dout}) {
    AttentionProblem p{.seqlen_q = 20, .seqlen_k = 20, .head_dim = 8};
    const int row = 11;
    for (const KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      CAPTURE(to_string(poisoned));
      TensorSet tensors(p);
      fill_random_inputs(tensors, Direction::backward);
      Tensor& input = tensors[poisoned];
      input.set(input.row_index(0, 0, row) + 3, std::numeric_limits<float>::quiet_NaN());
      const ExactAttention exact = exact_attention(tensors, Direction::backward);
      testing::run_kernel(c, ProgramOptions::with_tile({8, 8}), Direction::backward, tensors);
      for (TensorName name :
           {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
        CAPTURE(to_string(name));
        const std::span<const double> expected = exact[name];
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (std::isnan(expected[i])) {
            REQUIRE(std::isnan(tensors[name].get(static_cast<std::int64_t>(i))));
          }
        }
      }
    }
  }
}

TEST_CASE("results are bitwise the same for every thread count") {
  const int usual = omp_get_max_threads();
  for (unsigned seed = 0; seed < 8; ++seed) {
    testing::ProblemGenerator random(seed);
    AttentionProblem p = random.problem({16, 16});
    p.dtype = seed % 2 == 0 ? ElementType::fp32 : ElementType::bf16;
    p.seqlen_q = 100 + seed;
    p.seqlen_k = 90;
    ProgramOptions options = ProgramOptions::with_tile({16, 16});
    if (seed % 3 == 1) options.order = TileOrder::longest_first;
    if (seed % 3 == 2) {
      options.order = TileOrder::head_swizzled;
      options.swizzled_heads = 2;
      options.ctas_per_wave = 3;
      options.scan = Scan::sawtooth;
    }
    for (const KernelCase& c : testing::kernel_cases()) {
      CAPTURE(seed);
      CAPTURE(c.name());
      omp_set_num_threads(1);
      TensorSet expected(p);
      fill_random_inputs(expected, Direction::backward);
      testing::run_kernel(c, options, Direction::backward, expected);
      for (int threads : {2, 3, 5}) {
        omp_set_num_threads(threads);
        TensorSet tensors(p);
        fill_random_inputs(tensors, Direction::backward);
        testing::run_kernel(c, options, Direction::backward, tensors);
        for (TensorName name :
             {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
          CHECK(std::memcmp(tensors[name].data(), expected[name].data(),
                            static_cast<std::size_t>(expected[name].bytes())) == 0);
        }
      }
    }
  }
  omp_set_num_threads(usual);
}

TEST_CASE("only standard attention holds an N x N tensor") {
  const AttentionProblem p{.seqlen_q = 300, .seqlen_k = 300, .head_dim = 8};
  for (const KernelCase& c : testing::kernel_cases()) {
    TensorSet tensors(p);
    fill_random_inputs(tensors, Direction::backward);
    testing::run_kernel(c, ProgramOptions::with_tile({32, 32}), Direction::backward, tensors);
    CAPTURE(c.name());
    CHECK((tensors.bytes() >= 300 * 300 * 4) == (c.kernel->algorithm == Algorithm::standard));
  }
}

TEST_CASE("fp8 has no backward pass and the refusal says what has") {
  for (const Kernel& kernel : cpu_kernels()) {
    for (ElementType dtype : kElementTypes) {
      const AttentionProblem p{.dtype = dtype};
      const ProgramOptions options = kernel.default_options(p);
      CHECK_FALSE(kernel.refusal(p, Direction::forward, options));
      const auto refusal = kernel.refusal(p, Direction::backward, options);
      CHECK(refusal.has_value() == is_fp8(dtype));
      if (!refusal) continue;
      CHECK(refusal->find("bf16") != std::string::npos);
      TensorSet tensors(p);
      CHECK_THROWS_AS(kernel.run(options, Direction::backward, tensors, nullptr), BadInput);
    }
  }
}

}  // namespace
}  // namespace tilescope
