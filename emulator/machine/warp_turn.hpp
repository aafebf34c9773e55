// SPDX-License-Identifier: Apache-2.0
// A turn of a warp: some instructions, one group of its lanes after the other.
#pragma once

#include "emulator/machine/program.hpp"

namespace tilescope::gpu::emulator {

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
