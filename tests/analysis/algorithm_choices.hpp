// SPDX-License-Identifier: Apache-2.0
// Every way to run every algorithm, for tests that hold of all passes.
#pragma once

#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::testing {

struct AlgorithmChoice {
  Algorithm algorithm;
  Direction direction;
  BackwardOrder backward = BackwardOrder::split;
};

inline constexpr AlgorithmChoice kAlgorithmChoices[] = {
    {Algorithm::standard, Direction::forward},
    {Algorithm::standard, Direction::backward},
    {Algorithm::flash1, Direction::forward},
    {Algorithm::flash1, Direction::backward},
    {Algorithm::flash2, Direction::forward},
    {Algorithm::flash2, Direction::backward, BackwardOrder::split},
    {Algorithm::flash2, Direction::backward, BackwardOrder::fused},
    {Algorithm::flash2, Direction::backward, BackwardOrder::rows},
};

inline std::vector<TileProgram> programs_of(const AlgorithmChoice& choice, const AttentionProblem& problem,
                                            ProgramOptions options) {
  options.backward = choice.backward;
  if (choice.algorithm != Algorithm::flash2) options.diagonal_slices = 1;  // which alone cuts tiles finer
  return build_programs(choice.algorithm, choice.direction, problem, options);
}

}  // namespace tilescope::testing
