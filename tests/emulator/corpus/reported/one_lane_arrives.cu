// SPDX-License-Identifier: Apache-2.0
// All lanes of a warp store; one arrives at the mbarrier, which releases its own stores alone.
// As reported of an indexer's backward pass: https://github.com/NVIDIA/cudnn-frontend/pull/426
#include <cuda/ptx>

extern "C" __global__ void one_lane_arrives(const float* x, float* out) {
  namespace ptx = cuda::ptx;
  __shared__ float weights[32];
  __shared__ uint64_t loaded;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ptx::mbarrier_init(&loaded, 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    weights[lane] = x[lane];
#ifdef MENDED
    __syncwarp();
#endif
    if (lane == 0) ptx::mbarrier_arrive(&loaded);
  } else {
    while (!ptx::mbarrier_try_wait_parity(&loaded, 0)) {
    }
    out[lane] = weights[31 - lane];  // FAULT
  }
}
