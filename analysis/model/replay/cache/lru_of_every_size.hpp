// SPDX-License-Identifier: Apache-2.0
// An LRU cache of every size at once, with whole tiles as lines.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/model/replay/cache/reuse_stack.hpp"
#include "analysis/model/replay/tiles/run_tiles.hpp"

namespace tilescope {

/// Traffic that disappears once the L2 holds `distance_bytes` of what is loaded.
struct ReusePoint {
  std::int64_t distance_bytes = 0;
  std::int64_t read_bytes = 0;        // loads and reductions that hit from this capacity on
  std::int64_t write_back_bytes = 0;  // write-backs that a cache of this capacity saves
  bool operator==(const ReusePoint&) const = default;
};

/// Bytes by distance: a hash table with linear probing, because most of the time goes into it and the stack.
class DistanceTable {
 public:
  DistanceTable() : entries_(1 << 10) {}
  ReusePoint& at(std::int64_t distance);
  /// Ascending.
  std::vector<ReusePoint> sorted() const;

 private:
  /// Where `distance` stands, or would stand.
  std::size_t place(std::int64_t distance) const;
  void grow();

  std::vector<ReusePoint> entries_;  // a power of two; distance 0 is an empty place
  std::size_t used_ = 0;
};

class LruOfEverySize {
 public:
  explicit LruOfEverySize(const TileNumbering& tiles)
      : stack_(tiles.num_tiles()), largest_distance_(tiles.num_written_tiles(), kClean) {}

  void access(const RunTiles& run);

  std::int64_t cold_read_bytes() const { return cold_read_bytes_; }
  std::int64_t flush_write_bytes() const { return flush_write_bytes_; }
  /// Tiles of sums, and their bytes, that were stored first and reduced after.
  std::int64_t begun_tiles() const { return begun_tiles_; }
  std::int64_t begun_bytes() const { return begun_bytes_; }
  std::vector<ReusePoint> histogram() const { return distances_.sorted(); }

 private:
  static constexpr std::int64_t kClean = -1;

  /// @param times  that this access counts
  void access(AccessKind kind, NumberedTile tile, std::int64_t times);
  void track_dirty(AccessKind kind, NumberedTile tile, std::int64_t distance, std::int64_t times);

  DistanceTable distances_;
  ReuseStack stack_;
  std::vector<std::int64_t> largest_distance_;  // by tile, since it was last written
  std::int64_t cold_read_bytes_ = 0, flush_write_bytes_ = 0;
  std::int64_t begun_tiles_ = 0, begun_bytes_ = 0;
};

}  // namespace tilescope
