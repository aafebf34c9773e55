// SPDX-License-Identifier: Apache-2.0
// Tiles in by bulk copies that an mbarrier counts, and out by bulk copies in groups, without tensor maps.
#include <cooperative_groups.h>

#include <cuda/barrier>
#include <cuda/ptx>

extern "C" __global__ void bulk_copies(const float* x, float* out, int tiles) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(128) float tile[256], reversed[256];
  __shared__ cuda::barrier<cuda::thread_scope_block> landed;
  if (threadIdx.x == 0) init(&landed, blockDim.x);
  __syncthreads();
  for (int i = 0; i < tiles; ++i) {
    const int from = (blockIdx.x * tiles + i) * 256;
    cuda::memcpy_async(cooperative_groups::this_thread_block(), tile, x + from,
                       cuda::aligned_size_t<16>(sizeof tile), landed);
    landed.arrive_and_wait();
    reversed[threadIdx.x] = tile[255 - threadIdx.x] + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + from, reversed, sizeof reversed);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
    __syncthreads();
  }
}
