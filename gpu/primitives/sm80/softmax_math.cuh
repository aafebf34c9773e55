// SPDX-License-Identifier: Apache-2.0
// Rows of accumulators on their way through the softmax.
#pragma once

#include "gpu/primitives/common/quad_reduce.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm80/mma.cuh"

namespace tilescope::sm80 {

/// The largest of a lane's entries in the upper or lower half of a row of accumulators.
template <int kBlocks>
__device__ __forceinline__ float half_row_max(const Accumulator (&row)[kBlocks], int half) {
  float max = kMinusInfinity;
#pragma unroll
  for (const Accumulator& block : row) max = fmaxf(max, fmaxf(block.x[2 * half], block.x[2 * half + 1]));
  return max;
}

/// Scores of such a half row become probabilities, not normalised. @return their sum
template <int kBlocks>
__device__ __forceinline__ float exponentiate_half_row(Accumulator (&row)[kBlocks], int half, float scale,
                                                       float shift) {
  float sum = 0.0f;
#pragma unroll
  for (Accumulator& block : row) {
#pragma unroll
    for (int e = 2 * half; e < 2 * half + 2; ++e) {
      block.x[e] = exp2_approx(score_exponent(block.x[e], scale, shift));
      sum += block.x[e];
    }
  }
  return sum;
}

/// Multiplies such a half row.
template <int kBlocks>
__device__ __forceinline__ void scale_half_row(Accumulator (&row)[kBlocks], int half, float factor) {
#pragma unroll
  for (Accumulator& block : row) {
    block.x[2 * half] *= factor;
    block.x[2 * half + 1] *= factor;
  }
}

}  // namespace tilescope::sm80
