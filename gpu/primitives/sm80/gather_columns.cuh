// SPDX-License-Identifier: Apache-2.0
// Accumulators regrouped for stores and reductions of 16 bytes a lane.
#pragma once

#include "gpu/primitives/sm80/mma.cuh"

namespace tilescope::sm80 {

/// Half `half` (rows l / 4 + 8 half) of two neighbouring accumulators, regrouped so that each lane holds four
/// neighbouring columns: an even lane of the left accumulator, an odd lane of the right one. The four lanes
/// of a row then cover 64 bytes without a gap.
__device__ __forceinline__ float4 gather_columns(const Accumulator& left, const Accumulator& right, int half,
                                                 int lane) {
  const bool odd = lane & 1;
  const float l0 = left.x[2 * half], l1 = left.x[2 * half + 1];
  const float r0 = right.x[2 * half], r1 = right.x[2 * half + 1];
  const float other0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? l0 : r0, 1);
  const float other1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? l1 : r1, 1);
  return odd ? make_float4(other0, other1, r0, r1) : make_float4(l0, l1, other0, other1);
}
/// The first of those columns, counted from the left accumulator's first.
__device__ __forceinline__ int gathered_column(int lane) { return 8 * (lane & 1) + 4 * (lane >> 1 & 1); }

}  // namespace tilescope::sm80
