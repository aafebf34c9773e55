// SPDX-License-Identifier: Apache-2.0
// The sampled lines of every tile of a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/model/replay/cache/line_sample.hpp"
#include "analysis/model/replay/tiles/tile_memory.hpp"
#include "analysis/model/replay/tiles/tile_numbering.hpp"

namespace tilescope {

class TileLines {
 public:
  /// In contiguous memory all are placed at once, and several launches can share them. At random places, a
  /// page gets its own when it is first touched: a launch places its tiles one by one.
  /// The program and its numbering must outlive this.
  /// @param layout  of pages at random places
  TileLines(const TileProgram& program, const TileNumbering& numbers, const SplitL2Shape& shape,
            std::optional<std::uint32_t> layout);

  bool placed_at_once() const { return placed_at_once_; }
  /// Those of the tile of `tensor` that `group` touches for the first time.
  LineSample::Range place(TensorName tensor, const AccessGroup& group, std::uint32_t tile,
                          std::optional<int> slot = std::nullopt);
  /// The lines of a tile that was placed.
  LineSample::Range operator[](std::uint32_t tile) const { return ranges_[tile]; }
  const LineSample& sample() const { return sample_; }

  /// Whether an L2 keeps all lines of all tiles in both partitions, and those that are written dirty.
  /// Precondition: placed_at_once()
  bool all_fit(const SplitL2Shape& shape) const;

  /// What the lines of a pass's tiles take, about. [bytes]
  static std::int64_t memory_bytes(const TileProgram& program, const TileNumbering& numbers,
                                   const SplitL2Shape& shape);

 private:
  void place_all(TensorName tensor);

  const TileNumbering& numbers_;
  TileShape tile_;
  const TileProgram* program_;
  bool placed_at_once_;
  TileMemory memory_;
  LineSample sample_;
  std::vector<LineSample::Range> ranges_;  // by tile
};

}  // namespace tilescope
