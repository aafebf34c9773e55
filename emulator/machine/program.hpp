// SPDX-License-Identifier: Apache-2.0
// A kernel with the functions that execute its instructions.
#pragma once

#include <vector>

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

struct Step {
  const ptx::Instruction* instruction = nullptr;
  Execution execution;
  bool guarded = false;
};

struct Program {
  Program(const ptx::Kernel& kernel, const HandlerTable& table);

  const ptx::Kernel& kernel;
  std::vector<Step> steps;
  std::vector<std::uint64_t> executed;  // how often, by instruction
};

}  // namespace tilescope::gpu::emulator
