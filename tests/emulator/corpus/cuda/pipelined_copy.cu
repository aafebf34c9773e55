// SPDX-License-Identifier: Apache-2.0
// cp.async in two stages, by <cuda/pipeline>.
#include <cuda/pipeline>

extern "C" __global__ void pipelined_copy(const float4* x, float4* out, int tiles) {
  __shared__ float4 stage[2][128];
  auto pipeline = cuda::make_pipeline();
  const float4* from = x + blockIdx.x * tiles * 128;
  for (int tile = 0; tile < tiles + 1; ++tile) {
    if (tile < tiles) {
      pipeline.producer_acquire();
      cuda::memcpy_async(&stage[tile % 2][threadIdx.x], from + tile * 128 + threadIdx.x,
                         cuda::aligned_size_t<16>(16), pipeline);
      pipeline.producer_commit();
    }
    if (tile > 0) {
      tile < tiles ? cuda::pipeline_consumer_wait_prior<1>(pipeline)
                   : cuda::pipeline_consumer_wait_prior<0>(pipeline);
      __syncthreads();
      float4 value = stage[(tile - 1) % 2][127 - threadIdx.x];
      value.x += 1;
      out[(blockIdx.x * tiles + tile - 1) * 128 + threadIdx.x] = value;
      __syncthreads();
      pipeline.consumer_release();
    }
  }
}
