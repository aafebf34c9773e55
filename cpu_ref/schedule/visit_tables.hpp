// SPDX-License-Identifier: Apache-2.0
// What the blocks of a pass visit, as tables for kernels that do not compute it: the tiles of any mask's
// runs, and which entries of a partial one are visible, a bit each.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// The tiles of one block among VisitTables::tiles.
struct VisitedTiles {
  int first, count;
};

/// A tile of the streamed axis; in memory 16 bytes, which one copy brings.
struct alignas(16) VisitedTile {
  static constexpr int kFull = -1;
  int tile;
  int bits;  // of a partial tile: the first of its words among VisitTables::bits
};

struct VisitTables {
  std::vector<VisitedTiles> blocks;  // of every batch entry, or of one where nothing is padding
  std::vector<VisitedTile> tiles;    // ascending in each block
  /// Of each row of the owned axis, a bit for each entry of the streamed one, in whole words.
  std::vector<std::uint32_t> bits;
};

/// @param program  whose tiles have a multiple of 32 rows along the streamed axis
/// @throws BadInput where a place among tiles or bits does not fit an int
VisitTables visit_tables(const TileProgram& program);

/// What all CTAs ask of these tables, each request by sectors: where a block's tiles are, once; each tile, at
/// every step; and the bits of each partial one, TileProgram::bit_reads times.
WordAccesses visit_words(const TileProgram& program);

}  // namespace tilescope
