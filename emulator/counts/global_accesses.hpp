// SPDX-License-Identifier: Apache-2.0
// Races between CTAs in global memory, of kernels in which nothing can order CTAs: no fence, no acquire or
// release, no load that waits for what another stores. There any two accesses to a place by two CTAs race if
// one of them writes and the other is no store of the same value; whichever came first in the run, the same
// are found. CTAs of a cluster, which has barriers of its own, count as one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/machine/memory.hpp"
#include "emulator/machine/observer.hpp"

namespace tilescope::gpu::emulator {

/// Whether a kernel has what may order accesses to global memory by two of its CTAs.
bool may_order_ctas(const ptx::Kernel& kernel);

class GlobalAccesses {
 public:
  /// Whether the buffers are few enough to keep an account of.
  static bool fits(const Launch& launch, const Memory& memory);
  GlobalAccesses(const Launch& launch, const Memory& memory);

  /// Both may be called by several threads.
  void note(const LaneRequest& request);
  void note(const EngineRun& run);

  std::vector<Race> races() const;  // of a kernel in which nothing can order CTAs
  /// Of allocations that nobody initialised, what was read before anything was written there; one a line.
  std::vector<Race> unwritten_reads() const;

 private:
  enum Way : std::uint8_t { kRead, kWrite, kAtomic, kWays };
  /// Who touched a place: cluster and instruction, the least and the greatest of each way.
  struct Place {
    std::atomic<std::uint64_t> first[kWays] = {~0ull, ~0ull, ~0ull}, last[kWays] = {0, 0, 0};
    std::atomic<std::uint64_t> value = 0;  // of the first store, and kKnown
    std::atomic<bool> values_differ = false;
    std::atomic<std::uint32_t> unwritten_read = 0;  // its instruction and 1
  };
  struct Region {
    const Memory::Allocation* allocation;
    std::uint64_t count;
    std::unique_ptr<Place[]> places;
  };
  struct Pair {
    Way first_way, second_way;
    std::uint64_t first, second;
  };
  void touch(std::uint64_t address, std::uint32_t bytes, Way way, std::uint64_t who, const std::byte* value);
  static void touch(Place& place, Way way, std::uint64_t who, std::optional<std::uint64_t> value);
  static std::optional<Pair> race_at(const Place& place);
  std::uint64_t who(const Cta& cta, const ptx::Instruction& instruction) const;
  int line_of(std::uint64_t who) const;
  Race described(const Region& region, std::uint64_t index, const Pair& pair) const;

  const Launch& launch_;
  std::uint32_t place_bytes_;
  std::vector<Region> regions_;  // by address
};

}  // namespace tilescope::gpu::emulator
