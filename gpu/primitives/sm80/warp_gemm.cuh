// SPDX-License-Identifier: Apache-2.0
// A warp's share of the products of attention, right operands in swizzled shared tiles.
#pragma once

#include "gpu/primitives/sm80/mma.cuh"
#include "gpu/primitives/sm80/shared_tile.cuh"

namespace tilescope::sm80 {

/// A (16 kMBlocks) x (16 kNBlocks) block of fp32 accumulators, spread over a warp.
template <int kMBlocks, int kNBlocks>
struct WarpAccumulator {
  Accumulator tile[kMBlocks][2 * kNBlocks];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kNBlocks; ++j) tile[i][j] = {{0.0f, 0.0f, 0.0f, 0.0f}};
    }
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) tile[i][j].x[e] *= factor;
      }
    }
  }
};

/// Which blocks of 16 columns each of kWarps has that share kCols: neighbours, or, where those would straddle
/// the groups of 64 columns of a SharedTile, every kWarps-th.
template <int kCols, int kWarps>
struct WarpColumns {
  static constexpr int kBlocks = kCols / kWarps / 16;
  static constexpr int kStep = (kBlocks & (kBlocks - 1)) == 0 ? 1 : kWarps;
  static_assert(kBlocks * kWarps * 16 == kCols && (kStep == 1 || kStep % 4 == 0));

  /// A warp's first block.
  __device__ static constexpr int first(int warp) { return kStep == 1 ? kBlocks * warp : warp; }
};

/// A view of which every kStep-th column of blocks is taken.
template <int kStep, int kCols>
struct EveryFew {
  LdmatrixByColumns<kCols> view;

  __device__ __forceinline__ EveryFew at(int row_block, int col_block) const {
    return {view.at(row_block, col_block)};
  }
  __device__ __forceinline__ Fragment load_transposed(int row_block, int block) const {
    return view.load_transposed(row_block, kStep * block);
  }
};

/// Which 16 x 16 blocks of a block of scores a warp computes: all.
struct AllBlocks {
  __device__ static constexpr bool has(int, int) { return true; }
  __device__ static constexpr bool has_column(int) { return true; }
  __device__ static constexpr AllBlocks from(int) { return {}; }
};
/// Some of them: for each row of blocks a bit a column.
template <int kMBlocks>
struct SomeBlocks {
  unsigned columns[kMBlocks];

  __device__ bool has(int i, int j) const { return (columns[i] >> j & 1) != 0; }
  __device__ bool has_column(int j) const {
    unsigned any = 0;
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) any |= columns[i];
    return (any >> j & 1) != 0;
  }
  /// Those from `column` on.
  __device__ SomeBlocks from(int column) const {
    SomeBlocks blocks;
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) blocks.columns[i] = columns[i] >> column;
    return blocks;
  }
};

/// acc += a * b^T for one depth step of 16: block column k of b, whose rows are acc's columns.
template <ElementType kType, int kMBlocks, int kNBlocks, int kCols, typename Blocks>
__device__ __forceinline__ void step_abt(WarpAccumulator<kMBlocks, kNBlocks>& acc,
                                         const Fragment (&a)[kMBlocks], const LdmatrixByRows<kCols>& b, int k,
                                         const Blocks& blocks) {
#pragma unroll
  for (int j = 0; j < kNBlocks; ++j) {
    if (!blocks.has_column(j)) continue;
    const Fragment f = b.load(j, k);
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
      if (!blocks.has(i, j)) continue;
      mma_m16n8k16<kType>(acc.tile[i][2 * j], a[i], f.x[0], f.x[1]);
      mma_m16n8k16<kType>(acc.tile[i][2 * j + 1], a[i], f.x[2], f.x[3]);
    }
  }
}

/// acc += a * b for one depth step of 16: block row k of b, whose columns are acc's columns.
/// @param b  LdmatrixByColumns, or EveryFew of them
/// @param blocks  of a, whose column k is taken
template <ElementType kType, int kMBlocks, int kNBlocks, typename View, typename Blocks = AllBlocks>
__device__ __forceinline__ void step_ab(WarpAccumulator<kMBlocks, kNBlocks>& acc,
                                        const Fragment (&a)[kMBlocks], const View& b, int k,
                                        const Blocks& blocks = {}) {
  if (!blocks.has_column(k)) return;
#pragma unroll
  for (int j = 0; j < kNBlocks; ++j) {
    const Fragment f = b.load_transposed(k, j);
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
      if (!blocks.has(i, k)) continue;
      mma_m16n8k16<kType>(acc.tile[i][2 * j], a[i], f.x[0], f.x[1]);
      mma_m16n8k16<kType>(acc.tile[i][2 * j + 1], a[i], f.x[2], f.x[3]);
    }
  }
}

/// Does nothing between two depth steps.
struct NoInterleave {
  __device__ __forceinline__ void operator()(int) const {}
};

/// acc += a b^T over kDepth / 16 steps, both operands in shared memory. `interleave(k)` runs after step k:
/// arithmetic to hide behind the tensor cores.
template <ElementType kType, int kDepth, int kMBlocks, int kNBlocks, int kCols,
          typename Interleave = NoInterleave, typename Blocks = AllBlocks>
__device__ __forceinline__ void multiply_abt(WarpAccumulator<kMBlocks, kNBlocks>& acc,
                                             const LdmatrixByColumns<kCols>& a,
                                             const LdmatrixByRows<kCols>& b, Interleave interleave = {},
                                             const Blocks& blocks = {}) {
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    Fragment left[kMBlocks];
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) left[i] = a.load(i, k);
    step_abt<kType>(acc, left, b, k, blocks);
    interleave(k);
  }
}

}  // namespace tilescope::sm80
