// SPDX-License-Identifier: Apache-2.0
// Where the tiles of a pass lie in memory: tensors one after the other, each (batch, head, row, column).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cpu_ref/cta_walk.hpp"

namespace tilescope {

class TileMemory {
 public:
  /// The program must outlive this.
  explicit TileMemory(const TileProgram& program);

  /// Calls visit(address, bytes) for every run of bytes of the tile of `tensor` that `group` touches: one, or
  /// one a row where a tile is narrower than the tensor.
  template <typename Visitor>
  void for_each_run(TensorName tensor, const AccessGroup& group, Visitor&& visit) const {
    const TensorExtent& extent = extents_[static_cast<std::size_t>(tensor)];
    const TileShape& tile = program_->tile;
    const bool by_m = extent.indexing != TileIndexing::n;
    const std::int64_t heads_to_one = program_->problem.heads / extent.heads;
    const std::int64_t head = group.batch * extent.heads + group.head / heads_to_one;
    const std::int64_t rows_of_tile = by_m ? tile.block_m : tile.block_n;
    const std::int64_t row = rows_of_tile * (by_m ? group.m_block : group.n_block);
    const std::int64_t rows = std::min(rows_of_tile, extent.rows - row);
    const std::int64_t row_bytes = extent.cols * extent.element_bytes;
    std::int64_t address =
        addresses_[static_cast<std::size_t>(tensor)] + (head * extent.rows + row) * row_bytes;
    if (extent.indexing != TileIndexing::mn) {
      visit(address, rows * row_bytes);
      return;
    }
    const std::int64_t col = std::int64_t{group.n_block} * tile.block_n;
    const std::int64_t cols = std::min<std::int64_t>(tile.block_n, extent.cols - col);
    address += col * extent.element_bytes;
    for (std::int64_t i = 0; i < rows; ++i, address += row_bytes) visit(address, cols * extent.element_bytes);
  }

 private:
  const TileProgram* program_;
  std::array<TensorExtent, kNumTensors> extents_;
  std::array<std::int64_t, kNumTensors> addresses_;  // of a tensor's first byte
};

}  // namespace tilescope
