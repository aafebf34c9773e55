// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/crossing.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "emulator/counts/touched_sectors.hpp"
#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

std::uint64_t sectors_spanned(std::uint64_t from, std::uint64_t bytes) {
  return bytes == 0 ? 0 : (from + bytes - 1) / kSectorBytes - from / kSectorBytes + 1;
}

std::uint64_t sectors_of_row(std::uint64_t address, std::uint32_t bytes, bool within) {
  constexpr std::uint32_t kPiece = 64;
  if (within) return sectors_spanned(address, bytes);
  std::uint64_t sectors = 0;
  for (std::uint32_t at = 0; at < bytes; at += kPiece)
    sectors += sectors_spanned((address + at) % kSectorBytes, std::min(kPiece, bytes - at));
  return sectors;
}

std::uint64_t sectors_of_copy(const LaneRequest& request) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> landings;
  const ptx::Operand& target = request.warp.instruction->operands[0];
  for_lanes(request.lanes, [&](int lane) {
    const std::uint64_t to = request.warp.address(target, lane);
    landings.emplace(request.addresses[lane] / kSectorBytes, to / kSectorBytes);
  });
  return landings.size();
}

}  // namespace tilescope::gpu::emulator
