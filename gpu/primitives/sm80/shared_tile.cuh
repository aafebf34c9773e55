// SPDX-License-Identifier: Apache-2.0
// Swizzled tiles in shared memory: 16-bit elements, row by row, read by ldmatrix without bank conflicts.
#pragma once

#include <cstdint>

#include "gpu/primitives/sm80/ldmatrix.cuh"

namespace tilescope::sm80 {

/// Rows of kCols elements. The 16-byte chunks of a row are permuted by XOR with the row's number modulo 8, so
/// that the same chunk of eight consecutive rows covers all 32 banks: ldmatrix, cp.async and the stores of
/// accumulators are free of conflicts. Of rows of four chunks it is half the row's number modulo 4.
template <int kCols>
struct SharedTile {
  static_assert(kCols % 64 == 0 || kCols == 32,
                "the swizzle permutes groups of eight 16-byte chunks, or four");
  static constexpr int kRowBytes = 2 * kCols;
  static constexpr int kChunks = kCols / 8;

  std::uint32_t base;  // address in the shared window, 128-byte aligned

  static constexpr int bytes(int rows) { return rows * kRowBytes; }

  __device__ __forceinline__ std::uint32_t chunk_address(int row, int chunk) const {
    return base + row * kRowBytes + ((chunk ^ (kCols == 32 ? row >> 1 & 3 : row & 7)) << 4);
  }

  /// Stores an accumulator's two row halves, rounded and packed, at rows 16 * row_block, columns
  /// 8 * col_chunk.
  __device__ __forceinline__ void store(int lane, int row_block, int col_chunk, std::uint32_t top,
                                        std::uint32_t bottom) const {
    const int row = lane >> 2;  // below 8, and so is the swizzle of row + 8
    const std::uint32_t address = chunk_address(row, col_chunk) + row_block * 16 * kRowBytes + (lane & 3) * 4;
    store_shared(address, top);
    store_shared(address + 8 * kRowBytes, bottom);
  }
};

/// The order in which ldmatrix takes the four 8 x 8 matrices of a 16 x 16 block. mma wants its operands in
/// neighbouring registers, so the order decides what a block can be read as without moves.
enum class MatrixOrder : std::uint8_t {
  by_columns,  // (top, left), (bottom, left), (top, right), (bottom, right)
  by_rows,     // (top, left), (top, right), (bottom, left), (bottom, right)
};

/// A lane's view of the 16 x 16 blocks of a tile, for ldmatrix. Block indices count from the view's corner.
template <int kCols, MatrixOrder kOrder>
struct TileView {
  using Tile = SharedTile<kCols>;
  static_assert(kCols % 64 == 0);

  std::uint32_t base;    // of the rows and of the group of 64 columns that hold the corner
  std::uint32_t offset;  // this lane's row, and its chunk within the group, swizzled

  __device__ __forceinline__ TileView(Tile tile, int lane) : base(tile.base) {
    const int low = lane >> 3 & 1;
    const int high = lane >> 4;
    const int row = (lane & 7) + 8 * (kOrder == MatrixOrder::by_columns ? low : high);
    const int chunk = kOrder == MatrixOrder::by_columns ? high : low;
    offset = row * Tile::kRowBytes + ((chunk ^ (lane & 7)) << 4);
  }

  /// The view moved to another corner. Steps of `col_block` inside a group of 64 columns must be aligned to
  /// the number of blocks that are read from there (1, 2 or 4).
  __device__ __forceinline__ TileView at(int row_block, int col_block) const {
    TileView view = *this;
    view.base += row_block * 16 * Tile::kRowBytes + (col_block >> 2) * 128;
    view.offset ^= (col_block & 3) << 5;
    return view;
  }

  __device__ __forceinline__ std::uint32_t address(int row_block, int col_block) const {
    return base + (offset ^ ((col_block & 3) << 5)) + row_block * 16 * Tile::kRowBytes +
           (col_block >> 2) * 128;
  }

  /// by_columns: the block as a left operand. by_rows: as two right operands of a b^T (block rows 0-7, 8-15).
  __device__ __forceinline__ Fragment load(int row_block, int col_block) const {
    return ldmatrix(address(row_block, col_block));
  }
  /// by_columns: two right operands of a b (block columns 0-7, 8-15). by_rows: the block's transpose as a
  /// left operand.
  __device__ __forceinline__ Fragment load_transposed(int row_block, int col_block) const {
    return ldmatrix_transposed(address(row_block, col_block));
  }
};
template <int kCols>
using LdmatrixByColumns = TileView<kCols, MatrixOrder::by_columns>;
template <int kCols>
using LdmatrixByRows = TileView<kCols, MatrixOrder::by_rows>;

}  // namespace tilescope::sm80
