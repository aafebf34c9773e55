// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/candidate_programs.hpp"

#include <iterator>

#include "analysis/explain/candidate_parts.hpp"

namespace tilescope {

std::vector<CandidateProgram> candidate_programs(const AttentionProblem& problem,
                                                 std::span<const Direction> directions,
                                                 std::span<const int> splits) {
  validate(problem);
  std::vector<CandidateProgram> all;
  for (const Direction direction : directions) {
    CandidateCollector collector(direction);
    const bool forward = direction == Direction::forward;
    forward ? add_combining(collector, problem, splits) : add_passes_around_backward(collector, problem);
    for (const int block_m : kCandidateBlocks) {
      for (const int block_n : kCandidateBlocks) {
        const TileShape tile{block_m, block_n};
        forward ? add_forward(collector, problem, tile, splits)
                : add_backward(collector, problem, tile, splits);
      }
    }
    std::ranges::move(collector.take(), std::back_inserter(all));
  }
  return all;
}

CandidateProgram candidate_of(const std::string& name, Direction direction, const TileProgram& program) {
  CandidateCollector collector(direction);
  CandidateProgram candidate = collector.add(name, "", {program});
  candidate.somebodys = true;
  return candidate;
}

}  // namespace tilescope
