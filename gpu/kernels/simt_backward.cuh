// SPDX-License-Identifier: Apache-2.0
// What the backward passes on CUDA cores share: their shared memory, delta, and the ways of a gradient out.
#pragma once

#include "gpu/kernels/simt_softmax.cuh"

namespace tilescope::simt {

/// Shared memory of a backward pass.
template <int Dim, int BlockM, int BlockN, int ScoreCols>
struct BackwardShared {
  SharedTile<Dim> q, dout, k, v;
  SharedTile<ScoreCols> scores;  // P, then dS
  float *lse, *delta;

  __device__ explicit BackwardShared(float* base)
      : q{base},
        dout{base + BlockM * Dim},
        k{base + 2 * BlockM * Dim},
        v{k.data + BlockN * Dim},
        scores{v.data + BlockN * Dim},
        lse(scores.data + BlockM * BlockN),
        delta(lse + BlockM) {}
};

/// Copies a row statistic of a q tile; zeros beyond the matrix.
template <int Rows>
__device__ inline void load_statistic(float* destination, const GlobalRows<const float>& source) {
  const int row = thread_in_group();
  if (row >= Rows) return;
  const bool valid = row < source.rows;
  __pipeline_memcpy_async(destination + row, valid ? source.at(row, 0) : source.data, 4, valid ? 0 : 4);
}

/// Writes an accumulator times `factor` to a gradient.
template <typename Element, typename Quads>
__device__ inline void store_gradient(Lane lane, const GlobalRows<Element>& target, float factor,
                                      const Quads& accum) {
#pragma unroll
  for (int i = 0; i < Quads::kRowsHere; ++i) {
#pragma unroll
    for (int j = 0; j < Quads::kQuadsHere; ++j) {
      const float4 x = accum.x[i][j];
      store_quad(target, Quads::row(lane, i), Quads::col(lane, j),
                 {x.x * factor, x.y * factor, x.z * factor, x.w * factor});
    }
  }
}

/// Adds a tile's part of a gradient to an fp32 accumulator in slow memory.
template <typename Quads>
__device__ inline void reduce_gradient(Lane lane, const GlobalRows<float>& target, const Quads& part) {
#pragma unroll
  for (int i = 0; i < Quads::kRowsHere; ++i) {
#pragma unroll
    for (int j = 0; j < Quads::kQuadsHere; ++j) {
      reduce_quad(target, Quads::row(lane, i), Quads::col(lane, j), part.x[i][j]);
    }
  }
}

/// delta = rowsum(dO * O) of the q tile that lies in shared memory, O read from slow memory.
template <int Rows, typename Element, int Dim>
__device__ inline void compute_delta(Lane lane, const GlobalRows<const Element>& out, SharedTile<Dim> dout,
                                     float* delta) {
  for (int i = 0; i < Rows / (kWarps * kLaneRows); ++i) {
    const int row = lane.first_row<Rows>() + kLaneRows * i;
    float sum = 0.0f;
    if (row < out.rows) {
      for (int col = lane.col; col < out.cols; col += kLaneCols)
        sum = fmaf(dout.at(row, col), widen(*out.at(row, col)), sum);
    }
    sum = row_sum(sum);
    if (lane.col == 0) delta[row] = sum;
  }
}

}  // namespace tilescope::simt
