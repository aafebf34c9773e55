// SPDX-License-Identifier: Apache-2.0
// What a record keeps of the choices that a program was built with.
#include "analysis/model/counts/what_ran.hpp"

#include <doctest/doctest.h>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {
namespace {

PassChoices noted(Direction direction, const AttentionProblem& problem, const ProgramOptions& options) {
  PassChoices choices;
  for (const TileProgram& program : build_programs(Algorithm::flash2, direction, problem, options)) {
    note_choices(choices, program);
  }
  return choices;
}

TEST_CASE("a pass that stands for several programs has the choices of each, and nothing of what is usual") {
  using enum BackwardOrder;
  AttentionProblem problem;
  ProgramOptions options = ProgramOptions::with_tile({32, 32});
  for (const BackwardOrder order : {fused, split, q_outer, single_launch}) {
    options.backward = order;
    CHECK(noted(Direction::backward, problem, options) == PassChoices{.backward = order});
  }
  options.backward = ordered;
  CHECK(noted(Direction::forward, problem, options) == PassChoices{});
  CHECK(noted(Direction::backward, problem, options) ==
        PassChoices{.backward = ordered, .dq_start = "in-order"});

  options.diagonal_slices = 4;
  CHECK(noted(Direction::backward, problem, options) ==
        PassChoices{.diagonal_slices = 4, .backward = ordered});

  options.diagonal_slices = 1;
  options.variant = Variant::no_overlap;
  CHECK(noted(Direction::forward, problem, options) == PassChoices{.variant = "no-overlap"});
  CHECK(noted(Direction::backward, problem, options).variant == std::nullopt);
  options.variant = Variant::own;
  options.diagonal_slices = 4;

  options.fp8_sums = Fp8Sums::two_level;
  options[PassName::forward].launch = {.warps = 8, .stages = 3};
  CHECK(noted(Direction::forward, problem, options) ==
        PassChoices{.diagonal_slices = 4, .warps = 8, .stages = 3});
  problem.dtype = ElementType::fp8e4m3;
  CHECK(noted(Direction::forward, problem, options) ==
        PassChoices{.diagonal_slices = 4, .fp8_sums = "two-level", .warps = 8, .stages = 3});
}

TEST_CASE("splits are noted as what makes the same ones again, wherever their number came from") {
  using enum SplitPolicy::Kind;
  const AttentionProblem problem{.heads = 8, .heads_kv = 2, .seqlen_k = 4096};
  ProgramOptions options = ProgramOptions::with_tile({64, 128});
  options.splits = {automatic, 40};  // 8 CTAs of 32 kv tiles each
  CHECK(noted(Direction::forward, problem, options) == PassChoices{.splits = SplitPolicy{number, 5}});
  options.pack_gqa = true;
  options.splits = {fixed, 1024};
  CHECK(noted(Direction::forward, problem, options) ==
        PassChoices{.splits = SplitPolicy{fixed, 1024}, .pack_gqa = true});
  options.splits = {number, 1};
  CHECK(noted(Direction::forward, problem, options) == PassChoices{.pack_gqa = true});
}

TEST_CASE("other algorithms' backward passes have no order") {
  for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1}) {
    for (const TileProgram& program : build_programs(algorithm, Direction::backward, {}, {})) {
      CHECK_FALSE(backward_order(program));
    }
  }
}

TEST_CASE("a run says what its kernel's row says") {
  for (const Kernel& kernel : cpu_kernels()) {
    const RunEntry run = entry_of(kernel, {});
    CHECK(run.kernel == kernel.name);
    CHECK(run.algorithm == kernel.algorithm);
    CHECK(run.math_unit == MathUnit::simd);
    CHECK(run.runs_on == "cpu");
    CHECK(run.rung == kernel.rung);
  }
}

}  // namespace
}  // namespace tilescope
