// SPDX-License-Identifier: Apache-2.0
// What an access of a warp costs the memory: sectors of global memory, wavefronts of shared memory.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

using Addresses = std::array<std::uint64_t, kLanes>;

/// Different sectors of 32 bytes that the lanes touch; aligned accesses of up to 16 bytes lie in one each.
unsigned count_sectors(const Addresses& addresses, LaneMask lanes);

/// Turns that 32 banks of 4 bytes take: lanes of 8 bytes come by half warps, of 16 bytes by quarters; lanes
/// that touch the same word go together.
unsigned count_wavefronts(const Addresses& addresses, LaneMask lanes, std::uint32_t bytes);

}  // namespace tilescope::gpu::emulator
