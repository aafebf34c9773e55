// SPDX-License-Identifier: Apache-2.0
#include "analysis/counts/tensor_bytes.hpp"

#include <set>

namespace tilescope {

std::int64_t tensor_bytes(std::span<const TileProgram> programs) {
  std::set<TensorName> names;
  std::int64_t bytes = 0;
  const auto add = [&](const std::vector<Operand>& operands, const AttentionProblem& problem) {
    for (const Operand& operand : operands) {
      if (names.insert(operand.tensor).second) bytes += tensor_extent(problem, operand.tensor).bytes();
    }
  };
  for (const TileProgram& program : programs) {
    add(program.init, program.problem);
    add(program.prologue, program.problem);
    for (const auto& phase : program.phases) add(phase, program.problem);
    add(program.epilogue, program.problem);
  }
  return bytes;
}

}  // namespace tilescope
