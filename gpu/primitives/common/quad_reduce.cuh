// SPDX-License-Identifier: Apache-2.0
// Reductions over the four lanes that share a row of an accumulator, of mma and of wgmma alike.
#pragma once

namespace tilescope {

__device__ __forceinline__ float row_max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float row_sum_of_quad(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

}  // namespace tilescope
