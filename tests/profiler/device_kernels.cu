// SPDX-License-Identifier: Apache-2.0
#include "tests/profiler/device_kernels.hpp"

namespace tilescope::testing {

__global__ void touch_kernel(float4* target) {
  target[std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x] = {1, 2, 3, 4};
}

__global__ void copy_kernel(const float4* source, float4* target) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const std::int64_t index = (std::int64_t{blockIdx.x} * 16 + i) * blockDim.x + threadIdx.x;
    target[index] = source[index];
  }
}

__global__ void spin_kernel(std::int64_t nanoseconds) {
  std::int64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

void launch_touch(void* target, cudaStream_t stream) {
  touch_kernel<<<kTouchBytes / (16 * 256), 256, 0, stream>>>(static_cast<float4*>(target));
}

void launch_copy(const void* source, void* target, std::int64_t bytes, cudaStream_t stream) {
  copy_kernel<<<static_cast<unsigned>(bytes / (16 * 16 * 256)), 256, 0, stream>>>(
      static_cast<const float4*>(source), static_cast<float4*>(target));
}

void launch_spin(std::int64_t nanoseconds, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace tilescope::testing
