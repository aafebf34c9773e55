// SPDX-License-Identifier: Apache-2.0
// One launch of a pass on an L2 in two partitions.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/replay/cache/split_l2.hpp"
#include "analysis/replay/cache/tile_lines.hpp"
#include "analysis/replay/tiles/run_tiles.hpp"

namespace tilescope {

/// What every L2 must move is counted of all lines, the rest of those in the sample.
class LaunchReplay {
 public:
  /// @param lines  of a launch of its own, unless all were placed at once
  /// @param keeps_all  no line ever leaves the L2, so that none needs to be looked up
  LaunchReplay(TileLines& lines, std::uint32_t num_tiles, const SplitL2Shape& shape, bool keeps_all)
      : lines_(lines), keeps_all_(keeps_all), l2_(lines.sample(), shape.dirty_ways), tiles_(num_tiles) {}

  /// @param tiles  of the run
  /// @param partition  beside which its CTAs run
  void access(const CtaRun& run, const RunTiles& tiles, int partition);

  std::int64_t dram_read_bytes() const { return first_read_bytes_ + bytes_of(read_again_); }
  std::int64_t dram_write_bytes() const {
    return written_bytes_ + (keeps_all_ ? 0 : bytes_of(l2_.num_written() - written_lines_));
  }

  /// Of a launch on so many tiles, without their lines. [bytes]
  static std::int64_t memory_bytes(std::int64_t num_tiles) {
    return num_tiles * static_cast<std::int64_t>(sizeof(Seen));
  }

 private:
  using Seen = std::uint8_t;  // of a tile, by now
  static constexpr Seen kTouched = 1, kWritten = 2;

  void access_of(int cta, const CtaRun& run, const RunTiles& tiles, int partition);
  bool found_by_others(const RunTiles& tiles) const;
  /// @param group  that the tile belongs to, where it may have to be placed
  void access(const OperandTiles& operand, NumberedTile tile, const AccessGroup& group, int partition);
  std::int64_t bytes_of(std::int64_t lines) const;

  TileLines& lines_;
  bool keeps_all_;
  SplitL2 l2_;
  std::vector<Seen> tiles_;
  std::int64_t first_read_bytes_ = 0, written_bytes_ = 0;
  std::int64_t written_lines_ = 0, read_again_ = 0;  // of the sample
};

}  // namespace tilescope
