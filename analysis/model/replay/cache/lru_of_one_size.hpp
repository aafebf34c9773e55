// SPDX-License-Identifier: Apache-2.0
// An LRU cache of one size, with whole tiles as lines: what LruOfEverySize says of that size, in less time.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "analysis/model/replay/tiles/run_tiles.hpp"

namespace tilescope {

class LruOfOneSize {
 public:
  LruOfOneSize(const TileNumbering& tiles, std::int64_t bytes) : room_(bytes), tiles_(tiles.num_tiles()) {}

  void access(const RunTiles& run);

  std::int64_t read_bytes() const { return read_bytes_; }
  /// With those that a flush would write.
  std::int64_t write_bytes() const { return write_bytes_ + dirty_bytes_; }

  /// Tiles of sums, and their bytes, that were stored first and reduced after.
  std::int64_t begun_tiles() const { return begun_tiles_; }
  std::int64_t begun_bytes() const { return begun_bytes_; }

  /// What a cache of so many tiles takes at most. [bytes]
  static std::int64_t memory_bytes(std::int64_t num_tiles) {
    return num_tiles * static_cast<std::int64_t>(sizeof(Tile));
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Tile {
    std::uint32_t newer = kNone, older = kNone;
    std::int64_t bytes = 0;
    bool held = false, dirty = false, seen = false;
  };

  void access(AccessKind kind, NumberedTile tile);
  void make_newest(std::uint32_t number);
  void unlink(const Tile& tile);
  void evict_oldest();

  std::int64_t room_;  // less than 0 while too much is held
  std::vector<Tile> tiles_;
  std::uint32_t newest_ = kNone, oldest_ = kNone;
  std::int64_t read_bytes_ = 0, write_bytes_ = 0, dirty_bytes_ = 0;
  std::int64_t begun_tiles_ = 0, begun_bytes_ = 0;
  std::int64_t misses_ = 0;
};

}  // namespace tilescope
