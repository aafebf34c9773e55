// SPDX-License-Identifier: Apache-2.0
// Split keys (Flash-Decoding): several CTAs walk a part of the keys of a q tile each, and a pass combines
// what they leave. The rules by which the parts are cut, those of a kv tile's queries as well.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>

#include "cpu_ref/schedule/tile_runs.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

inline constexpr int kMaxSplits = 4096;

/// How the keys of a q tile are divided.
struct SplitPolicy {
  enum class Kind : std::uint8_t {
    none,    // one CTA walks them all
    number,  // into `value` equal shares of the tiles that the q tile visits
    fixed,   // after every `value` keys, wherever a sequence ends: the shares of one sequence, and with them
             // the bits of its result, do not depend on what else is in the batch
    automatic,  // into as many equal shares as fill `value` SMs well; 0: the SMs of whoever runs it
  };
  Kind kind = Kind::none;
  int value = 0;
  bool operator==(const SplitPolicy&) const = default;
};
/// "none", "8", "fixed:2048", "auto" or "auto:132".
std::string to_string(const SplitPolicy& policy);
/// The same read. @throws BadInput
SplitPolicy parse_split_policy(const std::string& field, const std::string& text);

inline constexpr int kCombinedRows = 16;  // of a CTA of the pass that combines, of no more than 256 columns
constexpr int combined_rows(std::int64_t value_dim) {
  return value_dim <= 256 ? kCombinedRows : kCombinedRows / 2;
}

/// Of the CTAs that share a kv tile (ProgramOptions::query_splits), those that divide a group's query heads
/// among them; each of these parts is divided further by q tiles.
constexpr int head_splits_of(int query_splits, int group) { return std::gcd(query_splits, group); }

/// A policy applied to a problem.
struct SplitKeys {
  int count = 1;
  int tiles = 0;  // kv tiles of a split of fixed length; 0: equal shares

  /// The tiles of one split of those that a q tile visits; its end, begin and full tiles as those of
  /// TileRange.
  TILESCOPE_HOST_DEVICE constexpr TileRange part_of(const TileRange& all, int split) const {
    const int share = tiles > 0 ? tiles : ceil_div(all.count(), count);
    const int first = (tiles > 0 ? 0 : all.begin) + split * share;
    return detail::tile_range(max_of(all.begin, first), min_of(all.end, first + share), all.full_begin,
                              all.full_end);
  }
  TileRuns part_of(const TileRuns& all, int split) const {
    const TileRange part = part_of(TileRange{0, tiles > 0 ? all.end_tile() : all.count()}, split);
    return tiles > 0 ? all.between(part.begin, part.end) : all.at_positions(part.begin, part.end);
  }
  /// How many of the splits have any.
  int busy(const TileRuns& all) const {
    if (all.empty()) return 0;
    if (tiles == 0) return ceil_div(all.count(), ceil_div(all.count(), count));
    int busy = 0, last = -1;
    for (const TileRange& run : all.runs()) {
      const int first = max_of(last + 1, run.begin / tiles);
      last = (run.end - 1) / tiles;
      busy += max_of(0, last - first + 1);
    }
    return busy;
  }
  bool operator==(const SplitKeys&) const = default;
};
/// `count` parts of so many tiles, at the same places whatever of them is visited.
TILESCOPE_HOST_DEVICE constexpr SplitKeys aligned_parts(int count, int tiles) {
  return {count, count > 1 ? ceil_div(tiles, count) : 0};
}

/// A policy that makes these splits of a problem that has them.
SplitPolicy policy_of(const SplitKeys& keys, int block_n);

/// What there is to split.
struct SplitTiles {
  std::int64_t q_tiles = 1;  // of the whole pass: CTAs without splits
  int kv_tiles = 1;      // of the longest sequence, seen or not: splits of fixed length lie where keys lie
  int most_visited = 1;  // kv tiles that a q tile sees something of
  std::int64_t visited = 0;  // of all q tiles; 0: as many each
};

/// @param block_n  keys of a kv tile
/// @throws BadInput for a fixed length that is not whole tiles, or too many splits
SplitKeys split_keys(const SplitPolicy& policy, const SplitTiles& tiles, int block_n);

/// The rule published with FlashAttention-3, of tiles alone: one split where four fifths of the SMs have a q
/// tile already or visit four kv tiles or fewer, else the fewest splits whose waves are at least 85 % as full
/// as those of the best number. As in FlashAttention-2, a number that leaves a split without a tile does not
/// count.
int wave_efficient_splits(std::int64_t q_tiles, int visited_tiles, int sms);
/// Where the longest walk is half as long again as the mean one, equal numbers of splits would leave it alone
/// at the end: as many tiles a split as each SM gets of all, four at least. 0: walks are alike, or short.
int tiles_of_uneven_splits(const SplitTiles& tiles, int sms);

}  // namespace tilescope
