// SPDX-License-Identifier: Apache-2.0
// Replays a pass's tile accesses, in the order in which a GPU would issue them, through a model of its L2.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "analysis/machine.hpp"
#include "cpu_ref/kernel.hpp"
#include "cpu_ref/tile_program.hpp"

namespace tilescope {

/// Traffic that disappears once the L2 holds `distance_bytes` of what is loaded.
struct ReusePoint {
  std::int64_t distance_bytes = 0;
  std::int64_t read_bytes = 0;        // loads and reductions that hit from this capacity on
  std::int64_t write_back_bytes = 0;  // write-backs that a cache of this capacity saves
  bool operator==(const ReusePoint&) const = default;
};

/// What an L2 keeps of what it is given.
struct L2Capacity {
  std::int64_t bytes = 0;
  /// 0: true LRU, which keeps what comes back within `bytes` and nothing else. n > 0: sets and replacement
  /// that only come near it, so that misses set in softly: the odds of eviction are (distance / bytes)^n.
  int onset_exponent = 0;

  L2Capacity(std::int64_t bytes_, int onset_exponent_ = 0)  // NOLINT(google-explicit-constructor): a size
      : bytes(bytes_), onset_exponent(onset_exponent_) {}
  /// Share of the bytes at stack distance `distance` > 0 that is evicted before it is touched again, in
  /// [0, 1]: a step at `bytes`, or a Hill function with its half there. Multiplications and divisions alone,
  /// so that it is the same on every machine.
  double evicted_share(std::int64_t distance) const;
};

/// What one replay of a pass tells about every L2 size.
///
/// The L2 is fully associative with whole tiles as lines, LRU or near it (L2Capacity), empty at the start of
/// the pass and flushed at its end. A load or reduction that misses fetches its tile; a store writes a whole
/// tile and fetches nothing; stores and reductions leave the tile dirty, and a dirty tile is written back
/// when it is evicted or flushed.
struct PassTraffic {
  std::int64_t co_resident_ctas = 0;
  std::int64_t accesses = 0;
  std::int64_t load_bytes = 0;  // SM<->L2, as are the next two
  std::int64_t store_bytes = 0;
  std::int64_t reduce_bytes = 0;
  std::int64_t cold_read_bytes = 0;    // read from DRAM at any L2 size
  std::int64_t flush_write_bytes = 0;  // written to DRAM at any L2 size
  std::vector<ReusePoint> histogram;   // exact, ascending distance

  std::int64_t sm_l2_read_bytes() const { return load_bytes; }
  std::int64_t sm_l2_write_bytes() const { return store_bytes + reduce_bytes; }
  std::int64_t dram_read_bytes(const L2Capacity& l2) const;
  std::int64_t dram_write_bytes(const L2Capacity& l2) const;
  /// Bytes of loads and reductions found in L2 / bytes of all loads and reductions; 1 for a pass without any.
  double hit_rate(const L2Capacity& l2) const;
};

/// How many CTAs run at once: SMs times the CTAs that fit an SM.
/// @param launch  what a GPU kernel's CTAs take; without, the shared memory that the program's tiles need
std::int64_t co_resident_ctas(const TileProgram& program, const Machine& machine,
                              const std::optional<LaunchShape>& launch = std::nullopt);

/// The CTAs that run at once, and how evenly.
struct CtaSchedule {
  std::int64_t co_resident_ctas = 1;  // on all SMs together
  std::int64_t ctas_per_sm = 1;
  /// Standard deviation of the time that a CTA takes for a step, which differs from CTA to CTA, over its
  /// mean. 0: all run in step.
  double pace_spread = 0;
  /// Steps that the other CTAs of an SM make while its oldest makes one, in (0, 1]. Below 1 they end up
  /// staggered, and each sweeps the tensors by itself.
  double younger_pace = 1;
};

/// What a byte takes of the L2, by what is done to it. A chip with an L2 in two parts keeps a line that SMs
/// of both read in both, but one that is only added to in the part that does the adding.
struct L2Space {
  double reduced = 1;  // of a tensor that the pass reduces and never loads, over one that it loads; in (0, 1]
  double one_reader = 1;  // of a tensor that one SM reads, over one that all read; in (0, 1]
};

/// Runs the co-resident CTAs, each at its own pace from one access group to the next, each replaced, on its
/// SM, by the next in the grid's order when it retires.
/// @param on_retired called after each CTA, for progress; may be empty
/// @throws MachineLacks when the replay would not fit this machine's memory
/// Source of the histogram: Mattson et al. 1970, for reads; for writes, a tile written twice is written back
/// in between exactly by the caches smaller than its largest distance since the first of the two.
PassTraffic simulate_pass(const TileProgram& program, const CtaSchedule& schedule, const L2Space& space = {},
                          const std::function<void()>& on_retired = {});

}  // namespace tilescope
