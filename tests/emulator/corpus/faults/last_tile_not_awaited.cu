// SPDX-License-Identifier: Apache-2.0
// A pipeline of two stages whose last wait still leaves one copy under way.
#include <cuda_pipeline.h>

extern "C" __global__ void last_tile_not_awaited(const int4* x, int4* out, int tiles) {
  __shared__ int4 stage[2][32];
  const int me = threadIdx.x;
  __pipeline_memcpy_async(&stage[0][me], &x[me], 16);
  __pipeline_commit();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      __pipeline_memcpy_async(&stage[(tile + 1) % 2][me], &x[(tile + 1) * 32 + me], 16);
      __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    __syncthreads();
    out[tile * 32 + me] = stage[tile % 2][31 - me];  // FAULT
    __syncthreads();
  }
}
