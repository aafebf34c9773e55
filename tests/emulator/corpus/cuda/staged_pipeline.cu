// SPDX-License-Identifier: Apache-2.0
// A pipeline of two stages whose state a block shares: copies arrive at its barriers.
#include <cooperative_groups.h>

#include <cuda/pipeline>

extern "C" __global__ void staged_pipeline(const float* x, float* out, int tiles) {
  constexpr int kStages = 2;
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  __shared__ alignas(16) float stage[kStages][128];
  const auto block = cooperative_groups::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  float sum = 0;
  for (int tile = 0, next = 0; tile < tiles; ++tile) {
    for (; next < tiles && next < tile + kStages; ++next) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, stage[next % kStages], x + next * 128, cuda::aligned_size_t<4>(512),
                         pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    sum += (tile + 1) * stage[tile % kStages][127 - threadIdx.x];
    pipeline.consumer_release();
  }
  out[threadIdx.x] = sum;
}
