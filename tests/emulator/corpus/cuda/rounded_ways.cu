// SPDX-License-Identifier: Apache-2.0
// Numbers rounded towards zero, down and up on their way to other types.
#include <cuda_fp16.h>

extern "C" __global__ void rounded_ways(const double* x, const int* n, float* down, float* up,
                                        __half* to_zero, __half* of_whole) {
  const int me = threadIdx.x;
  down[me] = __double2float_rd(x[me]);
  up[me] = __int2float_ru(n[me]);
  to_zero[me] = __float2half_rz(static_cast<float>(x[me]));
  of_whole[me] = __int2half_rn(n[me] % 100000);
}
