// SPDX-License-Identifier: Apache-2.0
// One launch of a pass on an L2 in two partitions.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/model/replay/cache/split_l2.hpp"
#include "analysis/model/replay/cache/step_lines.hpp"
#include "analysis/model/replay/cache/tile_lines.hpp"
#include "analysis/model/replay/tiles/run_tiles.hpp"

namespace tilescope {

/// What every L2 must move is counted of all lines, the rest of those in the sample.
class LaunchReplay {
 public:
  /// All but `steps` must outlive this.
  /// @param lines  of a launch of its own, unless all were placed at once
  /// @param steps  of such lines; without, every access is made tile by tile
  /// @param keeps_all  no line ever leaves the L2, so that none needs to be looked up
  LaunchReplay(const TileProgram& program, const TileNumbering& numbers, TileLines& lines,
               const StepLines* steps, const SplitL2Shape& shape, bool keeps_all);

  /// @param partition  beside which the CTAs of the run are
  void access(const CtaRun& run, int partition);

  SmTraffic asked() const;
  std::int64_t dram_read_bytes() const { return first_read_bytes_ + bytes_of(read_again_); }
  std::int64_t dram_write_bytes() const {
    return written_bytes_ + (keeps_all_ ? 0 : bytes_of(l2_.num_written() - written_lines_));
  }

  /// What a launch on so many tiles takes, without their lines. [bytes]
  static std::int64_t memory_bytes(std::int64_t num_tiles) {
    return num_tiles * static_cast<std::int64_t>(sizeof(Seen));
  }

 private:
  using Seen = std::uint8_t;  // of a tile, by now
  static constexpr Seen kTouched = 1, kWritten = 2;
  static constexpr std::int64_t kNotYet = -1;

  /// Makes a step, whose tiles have been touched before, so many times.
  void make_again(const StepLines::Step& step, int times, int partition);
  void make(const CtaRun& run, int partition);
  void make_of(int cta, const CtaRun& run, int partition);
  /// @param group  that the tile belongs to, where it may have to be placed
  void access(const OperandTiles& operand, NumberedTile tile, const AccessGroup& group, int partition);
  std::int64_t bytes_of(std::int64_t lines) const;

  TileLines& lines_;
  const StepLines* steps_;
  bool keeps_all_;
  SplitL2 l2_;
  RunTiles tiles_;                        // of the run
  std::vector<Seen> seen_;                // by tile
  std::vector<std::int64_t> made_again_;  // by step: how often, after the first time
  SmTraffic asked_;                       // but by steps that were made again
  std::int64_t first_read_bytes_ = 0, written_bytes_ = 0;
  std::int64_t written_lines_ = 0, read_again_ = 0;  // of the sample
};

}  // namespace tilescope
