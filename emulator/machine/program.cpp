// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/program.hpp"

namespace tilescope::gpu::emulator {

Program::Program(const ptx::Kernel& kernel, const HandlerTable& table)
    : kernel(kernel), executed(kernel.instructions.size()) {
  steps.reserve(kernel.instructions.size());
  for (const ptx::Instruction& instruction : kernel.instructions)
    steps.push_back(
        {&instruction, table.find(instruction), instruction.guard.kind != ptx::Operand::Kind::none});
}

}  // namespace tilescope::gpu::emulator
