// SPDX-License-Identifier: Apache-2.0
// exp2 and the reductions over the four lanes that share a row of an accumulator.
#pragma once

namespace tilescope::gpu {

inline constexpr float kLn2 = 0.693147180559945309f;
inline constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xFF800000); }

/// 2^x on the special function unit: 2 ulp, -inf gives 0, NaN stays NaN, denormal results become 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float row_max_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float row_sum_of_quad(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
__device__ __forceinline__ float sum_of_warp(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lane);
  return x;
}

}  // namespace tilescope::gpu
