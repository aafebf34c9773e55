// SPDX-License-Identifier: Apache-2.0
// Rows that a pass's CTAs touch, by sums over the blocks of the owned axis: what its bytes follow from.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Rows of the matrix that the tiles [begin, end) cover.
std::int64_t covered_rows(int begin, int end, int tile_rows, std::int64_t rows);

/// Rows and (row, column) areas that one head's CTAs touch, by sums over the blocks of the owned axis.
struct HeadSums {
  std::int64_t owned_rows = 0;  // every block once
  std::int64_t prologues = 0;   // that are run, in all splits
  std::int64_t busy_rows = 0;   // blocks with a visible inner tile, or all when the pass has no inner tiles
  std::int64_t prologue_rows = 0;    // the same once for each split that has one
  std::int64_t owned_step_rows = 0;  // the owned tile's rows, at each slice of its inner tiles
  std::int64_t inner_step_rows = 0;  // the rows of these slices
  std::int64_t inner_rows = 0;       // distinct inner rows
  std::int64_t area = 0;             // entries of visited tiles, clipped to the matrix
  std::int64_t slot_rows = 0;        // rows of q tiles, once for each slot of dQ that holds something
};

/// Batch entries with as much padding as each other.
struct EqualEntries {
  std::int64_t count = 0;
  HeadSums whole;     // of tensors with a row for every key
  HeadSums unpadded;  // of those that end at the padding
};

/// All of a program's batch entries.
std::vector<EqualEntries> entries_of(const TileProgram& program);

}  // namespace tilescope
