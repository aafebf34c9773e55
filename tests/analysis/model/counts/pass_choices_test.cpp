// SPDX-License-Identifier: Apache-2.0
// What a record keeps of the choices that a program was built with.
#include "analysis/model/counts/pass_choices.hpp"

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
  AttentionProblem problem;
  ProgramOptions options = ProgramOptions::with_tile({32, 32});
  for (const BackwardOrder order : {BackwardOrder::fused, BackwardOrder::split, BackwardOrder::rows}) {
    options.backward = order;
    CHECK(noted(Direction::backward, problem, options) == PassChoices{});
  }
  options.backward = BackwardOrder::ordered;
  CHECK(noted(Direction::forward, problem, options) == PassChoices{});
  CHECK(noted(Direction::backward, problem, options) ==  // convert comes last
        PassChoices{.ordered = true, .dq_start = "in-order"});

  options.diagonal_slices = 4;
  CHECK(noted(Direction::backward, problem, options) == PassChoices{.diagonal_slices = 4, .ordered = true});

  options.fp8_sums = Fp8Sums::two_level;
  CHECK(noted(Direction::forward, problem, options) == PassChoices{.diagonal_slices = 4});
  problem.dtype = ElementType::fp8e4m3;
  CHECK(noted(Direction::forward, problem, options) ==
        PassChoices{.diagonal_slices = 4, .fp8_sums = "two-level"});
}

}  // namespace
}  // namespace tilescope
