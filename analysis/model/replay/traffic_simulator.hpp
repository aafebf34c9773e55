// SPDX-License-Identifier: Apache-2.0
// Replays a pass's tile accesses, in the order in which a GPU would issue them, through a model of its L2.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/cache/lru_of_every_size.hpp"
#include "analysis/model/replay/ctas/cta_schedule.hpp"
#include "analysis/model/replay/sm_traffic.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// What one replay of a pass tells about every size of an LRU cache.
///
/// The cache is fully associative with whole tiles as lines, empty at the start of the pass and flushed at
/// its end. A load or reduction that misses fetches its tile; a store writes a whole tile and fetches
/// nothing; stores and reductions leave the tile dirty, and a dirty tile is written back when it is evicted
/// or flushed.
struct PassTraffic : SmTraffic {
  std::int64_t cold_read_bytes = 0;    // read from DRAM at any size
  std::int64_t flush_write_bytes = 0;  // written to DRAM at any size
  std::vector<ReusePoint> histogram;   // exact, ascending distance

  std::int64_t dram_read_bytes(std::int64_t l2_bytes) const;
  std::int64_t dram_write_bytes(std::int64_t l2_bytes) const;
};

/// What a pass moves on a chip with one L2.
struct L2Traffic : SmTraffic {
  std::int64_t dram_read_bytes = 0;
  std::int64_t dram_write_bytes = 0;
  bool operator==(const L2Traffic&) const = default;
};

/// What a pass moves on a chip whose L2 is in two partitions: in contiguous memory the mean of several
/// launches, with pages at random places the median of several layouts of the pages.
struct SplitL2Traffic : L2Traffic {
  /// Least and largest DRAM reads, and writes, of the layouts; absent in contiguous memory, which has one.
  std::optional<std::array<std::int64_t, 2>> dram_read_range, dram_write_range;
  bool operator==(const SplitL2Traffic&) const = default;
};

/// How many CTAs run at once: SMs times the CTAs that fit an SM.
/// @param launch  what a GPU kernel's CTAs take; without, the shared memory that the program's tiles need
std::int64_t co_resident_ctas(const TileProgram& program, const Machine& machine,
                              const std::optional<LaunchShape>& launch = std::nullopt);

/// Launches that are replayed on an L2 in two partitions, each with its own clocks.
inline constexpr std::size_t kLaunchesReplayed = 4;

/// Replays a pass through LRU caches of every size.
/// @param on_retired called after each CTA, for progress; may be empty
/// @throws MachineLacks when the replay would not fit this machine's memory
/// Source of the histogram: Mattson et al. 1970, for reads; for writes, a tile written twice is written back
/// in between exactly by the caches smaller than its largest distance since the first of the two.
PassTraffic simulate_pass(const TileProgram& program, const CtaSchedule& schedule,
                          const std::function<void()>& on_retired = {});

/// What simulate_pass says of one size, in less time.
/// @param on_retired, @throws as simulate_pass
L2Traffic simulate_lru(const TileProgram& program, const CtaSchedule& schedule, std::int64_t l2_bytes,
                       const std::function<void()>& on_retired = {});

/// Replays a pass through an L2 in two partitions (SplitL2), for CTAs placed as in several launches, each of
/// them with other pages where these lie at random.
/// @param on_retired, @throws as simulate_pass
SplitL2Traffic simulate_split_l2(const TileProgram& program, const CtaSchedule& schedule,
                                 const SplitL2Shape& shape, PagePlacement pages = PagePlacement::contiguous,
                                 const std::function<void()>& on_retired = {});

}  // namespace tilescope
