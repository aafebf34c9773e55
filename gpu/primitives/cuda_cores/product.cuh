// SPDX-License-Identifier: Apache-2.0
// The three matrix products that attention needs, of tiles in shared memory, on CUDA cores: sums in
// registers, and the operands of the next few multiply-adds on their way while those of the last ones are
// used.
#pragma once

#include "gpu/primitives/cuda_cores/tile.cuh"

namespace tilescope::cuda_cores {

/// This thread's part of a Rows x Cols matrix over which WarpRows x WarpCols warps are laid. Rows and columns
/// come in fours of neighbours, 32 apart, so that all of them are reached from one address in a SharedTile.
template <int Rows, int Cols, int WarpRows = kWarps, int WarpCols = 1>
struct ThreadTile {
  static constexpr int kRowsHere = Rows / (WarpRows * kLaneRows), kColsHere = Cols / (WarpCols * kLaneCols);
  static constexpr int kQuadsHere = kColsHere / 4;
  static_assert(kRowsHere == 2 || (kRowsHere % 4 == 0 && WarpRows % 2 == 0), "two warps share 32 rows");
  static_assert(kRowsHere * WarpRows * kLaneRows == Rows && kQuadsHere * WarpCols * 4 * kLaneCols == Cols);
  float x[kRowsHere][kColsHere];

  /// Distance of the i-th row from the first, and of the j-th column.
  __device__ static constexpr int row_step(int i) { return i / 4 * 32 + i % 4; }
  __device__ static constexpr int col_step(int j) { return j / 4 * 32 + j % 4; }
  __device__ static int row(Lane lane, int i) {
    const int warp = lane.warp % WarpRows;
    // Neighbouring lanes are 16 rows apart where a store of quads would meet in a bank otherwise.
    if (kRowsHere == 2) return 8 * warp + 4 * (lane.row & 1) + (lane.row & 2) + i;
    return warp / 2 * (8 * kRowsHere) + 8 * (warp & 1) + 16 * (lane.row & 1) + 2 * (lane.row & 2) +
           row_step(i);
  }
  __device__ static int col(Lane lane, int j) {
    return lane.warp / WarpRows * (Cols / WarpCols) + 4 * lane.col + col_step(j);
  }
  __device__ float4 quad(int i, int q) const {
    return {x[i][4 * q], x[i][4 * q + 1], x[i][4 * q + 2], x[i][4 * q + 3]};
  }
};

/// Warps across the columns that make a thread's part nearest to a square: R + C operands feed R x C sums.
constexpr int squarest_warp_cols(int rows, int cols, int warps) {
  int best = 0, least = 0;
  for (int warp_cols = 1; 2 * warp_cols <= warps; warp_cols *= 2) {
    const int here = rows / (warps / warp_cols * kLaneRows), across = cols / (warp_cols * kLaneCols);
    const bool fits = (here == 2 || (here > 0 && here % 4 == 0)) && across > 0 && across % 4 == 0 &&
                      across * warp_cols * kLaneCols == cols;
    if (!fits || (best && here + across >= least)) continue;
    best = warp_cols;
    least = here + across;
  }
  return best;
}
template <int Rows, int Cols, int Warps = kWarps>
using SquarestTile = ThreadTile<Rows, Cols, Warps / squarest_warp_cols(Rows, Cols, Warps),
                                squarest_warp_cols(Rows, Cols, Warps)>;

/// The i-th of `count`, to and fro: backwards in odd turns. A multiply-add reads three registers, one of each
/// of the register file's two banks a cycle; with one factor kept from the instruction before, in a cache at
/// the unit's input, it need not wait. Walks that turn round keep one at every step.
__device__ constexpr int snake(int i, int count, int turn) { return turn % 2 ? count - 1 - i : i; }

/// sums += factor * quads, one row of a product.
template <int Quads>
__device__ inline void multiply_row(int row, float factor, const float4 (&quads)[Quads],
                                    float (&sums)[4 * Quads]) {
#pragma unroll
  for (int n = 0; n < 4 * Quads; ++n) {
    const int j = snake(n, 4 * Quads, row);
    sums[j] = fmaf(factor, component(quads[j / 4], j % 4), sums[j]);
  }
}

/// The chunk after this one; after the last the first, so that a loop can always read ahead.
template <int Chunks>
__device__ inline int chunk_after(int chunk) {
  return (Chunks & (Chunks - 1)) == 0 ? (chunk + 1) & (Chunks - 1) : chunk + 1 < Chunks ? chunk + 1 : 0;
}

/// product = a b^T, with a (Rows x Depth) and b (Cols x Depth). Four columns of the depth at a time, a thread
/// holds what it needs of the operand that it needs less of, and the other one's rows pass by. Every second
/// one passes from its last column to its first, unless `InOrder`: of four columns two are odd registers and
/// two even ones, and sums that start in different banks wait less for them.
///
/// A thread with four rows or four columns, or fewer, computes those of its neighbour too and leaves half of
/// the depth to it; then they swap. So 8 x 8 sums share what is loaded, not 4 x 8. Where that would be more
/// than `MostSums`, it does not.
template <int MostSums = 0, bool InOrder = false, int Rows, int Cols, int WarpRows, int WarpCols, int Depth>
__device__ inline void multiply_nt(Lane lane, SharedTile<Depth> a, SharedTile<Depth> b,
                                   ThreadTile<Rows, Cols, WarpRows, WarpCols>& product) {
  using Product = ThreadTile<Rows, Cols, WarpRows, WarpCols>;
  constexpr int kRowsHere = Product::kRowsHere, kColsHere = Product::kColsHere;
  constexpr int kRowParts = kRowsHere <= 4 && 2 * kRowsHere * kColsHere <= MostSums ? 2 : 1;
  constexpr int kColParts = kColsHere <= 4 && 2 * kRowParts * kRowsHere * kColsHere <= MostSums ? 2 : 1;
  constexpr int kSumRows = kRowParts * kRowsHere, kSumCols = kColParts * kColsHere;
  constexpr bool kHoldRows = kSumRows <= kSumCols;
  constexpr int kHeld = kHoldRows ? kSumRows : kSumCols, kPassing = kHoldRows ? kSumCols : kSumRows;
  // Neighbours in the upper bit of the row lie in different halves of a warp, and those in the middle bit of
  // the column read neighbouring pairs of chunks: neither meet in a bank.
  const int slice =
      (kColParts == 2 ? lane.col >> 1 & 1 : 0) | (kRowParts == 2 ? lane.row >> 1 << (kColParts - 1) : 0);
  const Lane row_lanes[2] = {lane, {lane.warp, lane.row ^ 2, lane.col}};
  const Lane col_lanes[2] = {lane, {lane.warp, lane.row, lane.col ^ 2}};
  typename SharedTile<Depth>::Walk a_walks[kRowParts], b_walks[kColParts];
#pragma unroll
  for (int part = 0; part < kRowParts; ++part) {
    a_walks[part] = a.row(Product::row(row_lanes[part], 0)).from(2 * slice);
  }
#pragma unroll
  for (int part = 0; part < kColParts; ++part) {
    b_walks[part] = b.row(Product::col(col_lanes[part], 0)).from(2 * slice);
  }
  const auto load_row = [&](int chunk, int i) {
    return load_chunk(a_walks[i / kRowsHere].along(chunk) + Product::row_step(i % kRowsHere) * Depth);
  };
  const auto load_col = [&](int chunk, int j) {
    return load_chunk(b_walks[j / kColsHere].along(chunk) + Product::col_step(j % kColsHere) * Depth);
  };
  float4 held[2][kHeld], passing[2];
  const auto load_held = [&](int stage, int chunk, int h) {
    held[stage][h] = kHoldRows ? load_row(chunk, h) : load_col(chunk, h);
  };
  const auto load_passing = [&](int chunk, int p) {
    passing[p % 2] = kHoldRows ? load_col(chunk, p % kPassing) : load_row(chunk, p % kPassing);
  };
  float sums[kSumRows][kSumCols] = {};
#pragma unroll
  for (int h = 0; h < kHeld; ++h) load_held(0, 0, h);
  load_passing(0, 0);
  constexpr int kStride = 2 * kRowParts * kColParts;  // chunks that neighbours take at a time
#pragma unroll 1
  for (int here = 0; here < Depth / 4; here += kStride) {
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      // Two chunks side by side; after the last the first, so that there is always one to read ahead.
      const int next = stage == 0 ? here + 1 : here + kStride < Depth / 4 ? here + kStride : 0;
#pragma unroll
      for (int p = 0; p < kPassing; ++p) {
        load_passing(p + 1 < kPassing ? here + stage : next, p + 1);
#pragma unroll
        for (int h = p * kHeld / kPassing; h < (p + 1) * kHeld / kPassing; ++h) {
          load_held(1 - stage, next, h);
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const int x = InOrder ? n : snake(n, 4, p);
#pragma unroll
          for (int h = 0; h < kHeld; ++h) {
            float& sum = kHoldRows ? sums[h][p] : sums[p][h];
            sum = fmaf(component(held[stage][h], x), component(passing[p % 2], x), sum);
          }
        }
      }
    }
  }
  // Neighbours swap: first the column parts of all rows, then the row parts of what is left.
  if constexpr (kColParts == 2) {
#pragma unroll
    for (auto& row : sums) {
#pragma unroll
      for (int j = 0; j < kColsHere; ++j) {
        row[j] += __shfl_xor_sync(kAllLanes, row[kColsHere + j], Lane::kColBit1);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsHere; ++i) {
#pragma unroll
    for (int j = 0; j < kColsHere; ++j) {
      product.x[i][j] = sums[i][j];
      if constexpr (kRowParts == 2) {
        product.x[i][j] += __shfl_xor_sync(kAllLanes, sums[kRowsHere + i][j], Lane::kRowBit1);
      }
    }
  }
}

/// sum += a b, with a (Rows x Depth) and b (Depth x Cols).
template <int Rows, int Cols, int WarpRows, int WarpCols, int Depth>
__device__ inline void multiply_nn(Lane lane, SharedTile<Depth> a, SharedTile<Cols> b,
                                   ThreadTile<Rows, Cols, WarpRows, WarpCols>& sum) {
  using Sum = ThreadTile<Rows, Cols, WarpRows, WarpCols>;
  constexpr int kRowsHere = Sum::kRowsHere, kQuadsHere = Sum::kQuadsHere;
  const auto a_walk = a.row(Sum::row(lane, 0));
  const auto b_walk = b.column(Sum::col(lane, 0) / 4);
  float4 rows[2][kRowsHere], quads[2][kQuadsHere];
  const auto load_quads = [&](const float* first, int x) {
#pragma unroll
    for (int q = 0; q < kQuadsHere; ++q) quads[x % 2][q] = load_chunk(first + x * Cols + 32 * q);
  };
#pragma unroll
  for (int i = 0; i < kRowsHere; ++i) rows[0][i] = load_chunk(a_walk.along(0) + Sum::row_step(i) * Depth);
  const float* here = b_walk.down(0);
  load_quads(here, 0);
#pragma unroll 1
  for (int pair = 0; pair < Depth / 4; pair += 2) {
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      const int next = stage == 0 ? pair + 1 : chunk_after<Depth / 4>(pair + 1);
      const float *a_next = a_walk.along(next), *b_next = b_walk.down(next);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        if (x < 3) {
          load_quads(here, x + 1);
        } else {
          load_quads(b_next, 0);
        }
#pragma unroll
        for (int i = x * kRowsHere / 4; i < (x + 1) * kRowsHere / 4; ++i) {
          rows[1 - stage][i] = load_chunk(a_next + Sum::row_step(i) * Depth);
        }
#pragma unroll
        for (int i = 0; i < kRowsHere; ++i) {
          multiply_row(i, component(rows[stage][i], x), quads[x % 2], sum.x[i]);
        }
      }
      here = b_next;
    }
  }
}

/// sum += a^T b, with a (Depth x Rows) and b (Depth x Cols).
template <int Depth, int Rows, int Cols, int WarpRows, int WarpCols>
__device__ inline void multiply_tn(Lane lane, SharedTile<Rows> a, SharedTile<Cols> b,
                                   ThreadTile<Rows, Cols, WarpRows, WarpCols>& sum) {
  using Sum = ThreadTile<Rows, Cols, WarpRows, WarpCols>;
  constexpr int kRowQuads = Sum::kRowsHere / 4, kQuadsHere = Sum::kQuadsHere;
  static_assert(kRowQuads > 0, "a thread's rows come in quads");
  const auto a_walk = a.column(Sum::row(lane, 0) / 4);
  const auto b_walk = b.column(Sum::col(lane, 0) / 4);
  float4 rows[2][kRowQuads], quads[2][kQuadsHere];
  const auto load = [&](const float* a_first, const float* b_first, int x) {
#pragma unroll
    for (int i = 0; i < kRowQuads; ++i) rows[x % 2][i] = load_chunk(a_first + x * Rows + 32 * i);
#pragma unroll
    for (int q = 0; q < kQuadsHere; ++q) quads[x % 2][q] = load_chunk(b_first + x * Cols + 32 * q);
  };
  const float *a_here = a_walk.down(0), *b_here = b_walk.down(0);
  load(a_here, b_here, 0);
#pragma unroll 1
  for (int chunk = 0; chunk < Depth / 4; ++chunk) {
    const int next = chunk_after<Depth / 4>(chunk);
    const float *a_next = a_walk.down(next), *b_next = b_walk.down(next);
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      if (x < 3) {
        load(a_here, b_here, x + 1);
      } else {
        load(a_next, b_next, 0);
      }
#pragma unroll
      for (int i = 0; i < 4 * kRowQuads; ++i) {
        multiply_row(i, component(rows[x % 2][i / 4], i % 4), quads[x % 2], sum.x[i]);
      }
    }
    a_here = a_next;
    b_here = b_next;
  }
}

/// Writes a product into shared memory, for another one.
template <int Rows, int Cols, int WarpRows, int WarpCols>
__device__ inline void put(Lane lane, SharedTile<Cols> tile,
                           const ThreadTile<Rows, Cols, WarpRows, WarpCols>& values) {
  using Values = ThreadTile<Rows, Cols, WarpRows, WarpCols>;
  const int row = Values::row(lane, 0), col = Values::col(lane, 0);
  float* const first = tile.chunk(row, col / 4);
#pragma unroll
  for (int i = 0; i < Values::kRowsHere; ++i) {
#pragma unroll
    for (int q = 0; q < Values::kQuadsHere; ++q) {
      *reinterpret_cast<float4*>(first + Values::row_step(i) * Cols + 32 * q) = values.quad(i, q);
    }
  }
}

/// The transpose of a product, in shared memory. @param tile Cols x Rows
template <int Rows, int Cols, int WarpRows, int WarpCols>
__device__ inline void put_transposed(Lane lane, SharedTile<Rows> tile,
                                      const ThreadTile<Rows, Cols, WarpRows, WarpCols>& values) {
  using Values = ThreadTile<Rows, Cols, WarpRows, WarpCols>;
  const int row = Values::row(lane, 0), col = Values::col(lane, 0);
  float* const first = tile.chunk(col, row / 4) + row % 4;
  constexpr int kRun = Values::kRowsHere < 4 ? 2 : 4;
#pragma unroll
  for (int i = 0; i < Values::kRowsHere; i += kRun) {
#pragma unroll
    for (int j = 0; j < Values::kColsHere; ++j) {
      float* const place = first + Values::col_step(j) * Rows + Values::row_step(i);
      if constexpr (kRun == 2) {
        *reinterpret_cast<float2*>(place) = {values.x[i][j], values.x[i + 1][j]};
      } else {
        *reinterpret_cast<float4*>(place) = {values.x[i][j], values.x[i + 1][j], values.x[i + 2][j],
                                             values.x[i + 3][j]};
      }
    }
  }
}

}  // namespace tilescope::cuda_cores
