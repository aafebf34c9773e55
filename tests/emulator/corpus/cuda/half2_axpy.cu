// SPDX-License-Identifier: Apache-2.0
// Arithmetic and comparisons of pairs of fp16.
#include <cuda_fp16.h>

extern "C" __global__ void half2_axpy(const half2* x, const half2* y, half2* out, float scale, int pairs) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= pairs) return;
  half2 value = __hfma2(__float2half2_rn(scale), x[at], y[at]);
  value = __hmax2(value, __hneg2(x[at]));
  if (__hbgt2(value, y[at])) value = __hsub2(value, y[at]);
  out[at] = value;
}
