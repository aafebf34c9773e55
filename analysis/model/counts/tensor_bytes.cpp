// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/tensor_bytes.hpp"

#include <iterator>
#include <set>
#include <utility>
#include <vector>

namespace tilescope {

std::int64_t tensor_bytes(std::span<const TileProgram> programs) {
  std::set<TensorName> names;
  std::int64_t bytes = 0;
  const auto add = [&](const std::vector<Operand>& operands, const TileProgram& program) {
    for (const Operand& operand : operands) {
      if (names.insert(operand.tensor).second) bytes += program.extent(operand.tensor).bytes();
    }
  };
  for (const TileProgram& program : programs) {
    add(program.init, program);
    add(program.prologue, program);
    for (const auto& phase : program.phases) add(phase, program);
    add(program.epilogue, program);
  }
  return bytes;
}

std::int64_t tensor_bytes(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                          const ProgramOptions& options) {
  std::vector<TileProgram> programs = kernel.programs(Direction::forward, problem, options);
  if (direction == Direction::backward) {
    auto backward = kernel.programs(Direction::backward, problem, options);
    std::move(backward.begin(), backward.end(), std::back_inserter(programs));
  }
  return tensor_bytes(programs);
}

}  // namespace tilescope
