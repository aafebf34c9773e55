// SPDX-License-Identifier: Apache-2.0
// A barrier orders the threads that fill a tile, but not their stores before the copy engine's reads of it.
// As reported of an epilogue: https://github.com/NVIDIA/cudnn-frontend/pull/784
#include <cuda/ptx>

extern "C" __global__ void store_without_proxy_fence(const float* x, float* out) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(128) float tile[128];
  tile[threadIdx.x] = 2 * x[blockIdx.x * 128 + threadIdx.x];
#ifdef MENDED
  ptx::fence_proxy_async(ptx::space_shared);
#endif
  __syncthreads();
  if (threadIdx.x == 0) {
    float* const to = out + blockIdx.x * 128;
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to, tile, sizeof tile);  // FAULT
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
