// SPDX-License-Identifier: Apache-2.0
// How many parts of the keys the kernels of this folder share out, each by a time of its own. Plain C++.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// What splits depend on.
struct SplitWalks {
  std::int64_t q_tiles = 0;  // of all heads and batch entries
  int visited_tiles = 0;     // by the one with the longest walk
};

/// Walks of lengths of their own.
struct UnevenWalks {
  struct Walk {
    std::int64_t q_tiles = 0;
    int tiles = 0;
  };
  std::vector<Walk> walks;
  int most = 0;                         // tiles of the longest
  std::int64_t q_tiles = 0, tiles = 0;  // of all

  /// Splits of so many tiles that have any, of all q tiles.
  std::int64_t busy(int tiles_of_split) const;
};

/// The time of so many splits, in a unit of the kernel's own.
using SplitTime = std::function<double(int splits)>;

/// The fewest splits of 1 ... most whose time is so near the best one, none of which is left without a tile.
int fewest_splits(int visited_tiles, int most, const SplitTime& time, double near_best = 1.02);

/// @param unsplit  the kernel's options but for splits
/// @param splits_of  the kernel's number, of more than one tile, where walks are alike
/// @param uneven_tiles  tiles of a split of fixed length, where some are much longer than others; without it
/// splits are automatic there
SplitPolicy choose_splits(const AttentionProblem& problem, const ProgramOptions& unsplit,
                          const std::function<int(const SplitWalks&)>& splits_of,
                          const std::function<int(const UnevenWalks&)>& uneven_tiles = {});

}  // namespace tilescope
