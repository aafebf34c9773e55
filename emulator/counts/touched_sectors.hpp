// SPDX-License-Identifier: Apache-2.0
// Which sectors of the allocations a launch reads and writes at all, and what it does first: what DRAM must
// move, were L2 to keep everything. CTAs count in the order of the grid, whatever runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

inline constexpr std::uint64_t kSectorBytes = 32;

class TouchedSectors {
 public:
  explicit TouchedSectors(const Memory& memory);

  /// May be called by several threads. Sectors are addresses / 32.
  void read(std::uint64_t sector, std::uint32_t cta) { touch(sector, cta, false, false); }
  void write(std::uint64_t sector, std::uint32_t cta) { touch(sector, cta, true, true); }
  /// An atomic: what is there is read first.
  void update(std::uint64_t sector, std::uint32_t cta) { touch(sector, cta, false, true); }

  /// Bytes that a store covers, a bit each of a sector's 32.
  void cover(std::uint64_t sector, std::uint32_t bytes);

  /// A load that looks in L1. Whether one did before at that sector, wherever.
  bool looks_again(std::uint64_t sector);

  std::uint64_t must_read_bytes() const;
  std::uint64_t must_write_bytes() const;
  /// Of sectors that were written before anything else, in part for good: the L2 reads them when it gives
  /// them up.
  std::uint64_t filled_bytes() const;

 private:
  static constexpr std::uint32_t kUntouched = ~0u;
  struct Sectors {
    std::uint64_t first = 0, count = 0;
    std::unique_ptr<std::atomic<std::uint32_t>[]> first_touch;  // 2 * CTA + (1 if it begins with a write)
    std::unique_ptr<std::atomic<std::uint32_t>[]> covered;      // a bit a byte
    std::unique_ptr<std::atomic<bool>[]> written, in_l1;
  };
  /// Its allocation and index there; null beyond all.
  std::pair<Sectors*, std::uint64_t> find(std::uint64_t sector);
  void touch(std::uint64_t sector, std::uint32_t cta, bool begins_with_write, bool writes);
  /// Of the sectors of which counts(sectors, index) says so.
  template <typename Counts>
  std::uint64_t bytes_where(Counts&& counts) const;
  std::map<std::uint64_t, Sectors> by_first_;
};

}  // namespace tilescope::gpu::emulator
