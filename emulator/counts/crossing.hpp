// SPDX-License-Identifier: Apache-2.0
// How many sectors cross to an SM for what copies ask for: more than they name, by rules that counters
// showed.
#pragma once

#include <cstdint>

#include "emulator/machine/observer.hpp"

namespace tilescope::gpu::emulator {

/// Different sectors that a run of bytes lies in.
std::uint64_t sectors_spanned(std::uint64_t from, std::uint64_t bytes);

/// What a row costs that the copy engine loads and that has `within` bytes, from `begin` on, in the tensor:
/// the sectors that these touch, and as many as the zeros beyond fill. Counted on an H200 and an H100.
std::uint64_t sectors_of_row(std::uint64_t begin, std::uint32_t within, std::uint32_t bytes);

/// What cp.async.cg fetches: past L1, a sector goes to one block of 32 bytes of shared memory, and is fetched
/// again for another. Counted on an H100.
std::uint64_t sectors_of_copy(const LaneRequest& request);

}  // namespace tilescope::gpu::emulator
