// SPDX-License-Identifier: Apache-2.0
// Rows divided by their largest size, in bf16.
#include <cuda_bf16.h>

extern "C" __global__ void bf16_norm(const __nv_bfloat16* x, __nv_bfloat16* out, int columns) {
  __nv_bfloat16 largest = __float2bfloat16(0.0f);
  for (int at = threadIdx.x; at < columns; at += 32)
    largest = __hmax(largest, __habs(x[blockIdx.x * columns + at]));
  for (int step = 16; step > 0; step /= 2)
    largest = __hmax(largest, __shfl_xor_sync(0xffffffff, largest, step));
  for (int at = threadIdx.x; at < columns; at += 32)
    out[blockIdx.x * columns + at] = __hdiv(x[blockIdx.x * columns + at], largest);
}
