// SPDX-License-Identifier: Apache-2.0
// A turn of a warp: some instructions, one group of its lanes after the other.
#pragma once

#include <vector>

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

struct Step {
  const ptx::Instruction* instruction = nullptr;
  Execution execution;
  bool guarded = false;
};

/// A kernel with the functions that execute its instructions.
struct Program {
  Program(const ptx::Kernel& kernel, const HandlerTable& table);

  const ptx::Kernel& kernel;
  std::vector<Step> steps;
  std::vector<std::uint64_t> executed;  // how often, by instruction
};

enum class TurnEnd {
  progressed,
  idle,  // did little but ask for what is not yet so: a barrier, a poll, lanes to come
  done,  // no lane lives
};

/// Executes up to `most` instructions, beginning with group `first` of the warp's lanes. Throws DeviceError
/// with the place of a Fault.
TurnEnd take_turn(Warp& warp, Program& program, std::uint64_t most, std::size_t first);

/// Where the warp's lanes are, with lines and text: for messages.
std::string place_of(const Warp& warp, const Program& program);

}  // namespace tilescope::gpu::emulator
