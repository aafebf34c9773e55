// SPDX-License-Identifier: Apache-2.0
// The way of every access of ordinary instructions to memory: addresses are checked and counted, and become
// host pointers.
#pragma once

#include <array>
#include <cstddef>

#include "emulator/machine/traffic.hpp"
#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

enum class Reach : std::uint8_t { generic, global, shared, parameter, local };
enum class Purpose : std::uint8_t {
  load,
  store,
  atomic,  // of ordinary instructions, those that return nothing too
  reduce,  // by the copy engine
  copy,    // cp.async into shared memory, which lands at any time up to its wait
};

using Targets = std::array<std::byte*, kLanes>;  // of the active lanes

/// Where `bytes` (1 to 16, to which the address must be aligned) lie that each active lane addresses by
/// `operand`. Throws a Fault that names the lane.
Targets access(Warp& warp, const ptx::Operand& operand, Reach reach, Purpose purpose, std::uint32_t bytes);
/// The same where addresses are multiples of another power of two.
Targets access_aligned(Warp& warp, const ptx::Operand& operand, Reach reach, Purpose purpose,
                       std::uint32_t bytes, std::uint32_t alignment);

/// The same at addresses that no operand holds, aligned to `bytes`.
Targets access_at(Warp& warp, const Addresses& addresses, Reach reach, Purpose purpose, std::uint32_t bytes);

/// Host memory of one lane's generic address, local memory included.
std::byte* generic_target(Warp& warp, std::uint64_t address, std::uint32_t bytes, int lane);
/// Host memory of an address of .param, which may be a call's.
std::byte* parameter_target(Warp& warp, std::uint64_t offset, std::uint32_t bytes, int lane);

/// The bytes that a lane's store writes, at most 16; false where the instruction's operands do not tell.
bool stored_bytes(const Warp& warp, int lane, std::uint32_t bytes, std::byte* to);

/// The space that an instruction names by a modifier.
Reach reach_of(const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
