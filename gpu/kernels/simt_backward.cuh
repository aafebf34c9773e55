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
  using Quads = QuadTile<Rows, Dim>;
#pragma unroll(Quads::kRowsHere <= 2 ? 2 : 1)
  for (int i = 0; i < Quads::kRowsHere; ++i) {
    const int row = Quads::row(lane, i);
    float sum = 0.0f;
    const auto add = [&](int j, const float4& o) {
      const float4 d = dout.load(row, Quads::col(lane, j) / 4);
      sum = fmaf(d.x, o.x, fmaf(d.y, o.y, fmaf(d.z, o.z, fmaf(d.w, o.w, sum))));
    };
    if (out.quads()) {
      RawQuad<Element> quads[Quads::kQuadsHere];
#pragma unroll
      for (int j = 0; j < Quads::kQuadsHere; ++j) quads[j] = load_raw(out, row, Quads::col(lane, j));
#pragma unroll
      for (int j = 0; j < Quads::kQuadsHere; ++j) add(j, widen_quad<Element>(quads[j]));
    } else {
#pragma unroll
      for (int j = 0; j < Quads::kQuadsHere; ++j) add(j, load_quad(out, row, Quads::col(lane, j)));
    }
    sum = row_sum(sum);
    if (lane.col == 0) delta[row] = sum;
  }
}

}  // namespace tilescope::simt
