// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/traffic.hpp"

#include <algorithm>

namespace tilescope::gpu::emulator {

unsigned count_sectors(const Addresses& addresses, LaneMask lanes) {
  std::array<std::uint64_t, kLanes> sectors;
  unsigned count = 0;
  bool rising = true;
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t sector = addresses[lane] / 32;
    if (count > 0 && sectors[count - 1] == sector) return;
    rising &= count == 0 || sectors[count - 1] < sector;
    sectors[count++] = sector;
  });
  if (rising) return count;
  std::sort(sectors.begin(), sectors.begin() + count);
  return static_cast<unsigned>(std::unique(sectors.begin(), sectors.begin() + count) - sectors.begin());
}

unsigned count_wavefronts(const Addresses& addresses, LaneMask lanes, std::uint32_t bytes) {
  constexpr unsigned kBanks = 32;
  const int lanes_together = bytes <= 4 ? kLanes : static_cast<int>(128 / bytes);
  const unsigned words = std::max(bytes / 4, 1u);
  unsigned wavefronts = 0;
  for (int begin = 0; begin < kLanes; begin += lanes_together) {
    std::array<std::array<std::uint64_t, kLanes>, kBanks> touched;  // by bank, different words
    std::array<unsigned, kBanks> counts{};
    const LaneMask together = lanes & static_cast<LaneMask>(((1ull << lanes_together) - 1) << begin);
    for_lanes(together, [&](int lane) {
      for (std::uint64_t word = addresses[lane] / 4; word < addresses[lane] / 4 + words; ++word) {
        const std::size_t bank = word % kBanks;
        auto* const end = touched[bank].data() + counts[bank];
        if (std::find(touched[bank].data(), end, word) == end) touched[bank][counts[bank]++] = word;
      }
    });
    wavefronts += *std::ranges::max_element(counts);
  }
  return wavefronts;
}

}  // namespace tilescope::gpu::emulator
