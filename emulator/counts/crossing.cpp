// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/crossing.hpp"

#include <set>
#include <utility>

#include "emulator/counts/touched_sectors.hpp"
#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

std::uint64_t sectors_spanned(std::uint64_t from, std::uint64_t bytes) {
  return bytes == 0 ? 0 : (from + bytes - 1) / kSectorBytes - from / kSectorBytes + 1;
}

std::uint64_t sectors_of_row(std::uint64_t begin, std::uint32_t within, std::uint32_t bytes) {
  return sectors_spanned(begin, within) + sectors_spanned(0, bytes - within);
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
