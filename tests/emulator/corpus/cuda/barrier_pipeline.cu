// SPDX-License-Identifier: Apache-2.0
// Producers and consumers by cuda::barrier, whose state lies in registers.
#include <cuda/barrier>

extern "C" __global__ void barrier_pipeline(const int* x, int* out, int tiles) {
  __shared__ int tile[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> full, empty;
  if (threadIdx.x == 0) init(&full, 128), init(&empty, 128);
  __syncthreads();
  for (int i = 0; i < tiles; ++i) {
    if (threadIdx.x < 64) {
      tile[threadIdx.x] = x[i * 64 + threadIdx.x];
      auto arrived = full.arrive();
      (void)arrived;
      empty.arrive_and_wait();
    } else {
      full.arrive_and_wait();
      out[i * 64 + threadIdx.x - 64] = tile[127 - threadIdx.x];
      empty.arrive_and_wait();
    }
  }
}
