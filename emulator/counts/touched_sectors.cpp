// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/touched_sectors.hpp"

#include <algorithm>
#include <iterator>

namespace tilescope::gpu::emulator {
TouchedSectors::TouchedSectors(const Memory& memory) {
  std::uint64_t behind = 0;  // the last sector so far
  for (const auto& [base, allocation] : memory.allocations()) {
    Sectors sectors;
    // A sector that two allocations share counts with the first.
    sectors.first = std::max(base / kSectorBytes, behind);
    behind = (base + allocation.bytes + kSectorBytes - 1) / kSectorBytes;
    if (behind <= sectors.first) continue;
    sectors.count = behind - sectors.first;
    sectors.first_touch = std::make_unique<std::atomic<std::uint32_t>[]>(sectors.count);
    sectors.covered = std::make_unique<std::atomic<std::uint32_t>[]>(sectors.count);
    sectors.written = std::make_unique<std::atomic<bool>[]>(sectors.count);
    sectors.in_l1 = std::make_unique<std::atomic<bool>[]>(sectors.count);
    for (std::uint64_t i = 0; i < sectors.count; ++i) sectors.first_touch[i] = kUntouched;
    by_first_.emplace(sectors.first, std::move(sectors));
  }
}

std::pair<TouchedSectors::Sectors*, std::uint64_t> TouchedSectors::find(std::uint64_t sector) {
  const auto after = by_first_.upper_bound(sector);
  if (after == by_first_.begin()) return {};
  Sectors& sectors = std::prev(after)->second;
  const std::uint64_t index = sector - sectors.first;
  if (index >= sectors.count) return {};
  return {&sectors, index};
}

void TouchedSectors::cover(std::uint64_t sector, std::uint32_t bytes) {
  const auto [sectors, index] = find(sector);
  if (sectors) sectors->covered[index].fetch_or(bytes, std::memory_order_relaxed);
}

bool TouchedSectors::looks_again(std::uint64_t sector) {
  const auto [sectors, index] = find(sector);
  return sectors && sectors->in_l1[index].exchange(true, std::memory_order_relaxed);
}

void TouchedSectors::touch(std::uint64_t sector, std::uint32_t cta, bool begins_with_write, bool writes) {
  const auto [sectors, index] = find(sector);
  if (!sectors) return;
  if (writes) sectors->written[index].store(true, std::memory_order_relaxed);
  std::atomic<std::uint32_t>& first = sectors->first_touch[index];
  const std::uint32_t mine = 2 * cta + begins_with_write;
  for (std::uint32_t least = first.load(std::memory_order_relaxed); mine / 2 < least / 2;) {
    if (first.compare_exchange_weak(least, mine, std::memory_order_relaxed)) break;
  }
}

template <typename Counts>
std::uint64_t TouchedSectors::bytes_where(Counts&& counts) const {
  std::uint64_t count = 0;
  for (const auto& [first, sectors] : by_first_) {
    for (std::uint64_t i = 0; i < sectors.count; ++i) count += counts(sectors, i);
  }
  return count * kSectorBytes;
}

std::uint64_t TouchedSectors::must_read_bytes() const {
  return bytes_where([](const Sectors& sectors, std::uint64_t i) {
    const std::uint32_t touch = sectors.first_touch[i];
    return touch != kUntouched && touch % 2 == 0;
  });
}

std::uint64_t TouchedSectors::filled_bytes() const {
  return bytes_where([](const Sectors& sectors, std::uint64_t i) {
    const std::uint32_t touch = sectors.first_touch[i];
    return touch != kUntouched && touch % 2 == 1 && sectors.covered[i] != ~0u;
  });
}

std::uint64_t TouchedSectors::must_write_bytes() const {
  return bytes_where([](const Sectors& sectors, std::uint64_t i) { return sectors.written[i].load(); });
}

}  // namespace tilescope::gpu::emulator
