// SPDX-License-Identifier: Apache-2.0
// A thread's wait covers the copies that it issued itself; it goes on to read those of others.
// As reported of quantised attention: https://github.com/ashalliants/ninfer-3090/pull/49
#include <cuda_pipeline.h>

extern "C" __global__ void waits_for_its_own_copy(const int4* x, int4* out, int tiles) {
  __shared__ int4 tile[128];
  for (int i = 0; i < tiles; ++i) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[i * 128 + threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef MENDED
    __syncthreads();
#endif
    out[i * 128 + threadIdx.x] = tile[127 - threadIdx.x];  // FAULT
    __syncthreads();
  }
}
