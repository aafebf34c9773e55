// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/kernels.hpp"

namespace tilescope {
namespace {

constexpr int kLinkThreads = 512;
constexpr int kLinkInFlight = 8;  // vectors of 16 bytes a thread

/// Calls step(index of the first vector, from one to the next) for what a thread moves at a time.
template <typename Step>
__device__ void for_each_step(std::int64_t vectors, Step&& step) {
  const std::int64_t all = std::int64_t{gridDim.x} * kLinkThreads;
  for (std::int64_t base = std::int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; base < vectors;
       base += kLinkInFlight * all)
    step(base, all);
}

__global__ void __launch_bounds__(kLinkThreads)
    link_read(const float4* source, void* target, std::int64_t vectors) {
  float sum = 0;
  for_each_step(vectors, [&](std::int64_t base, std::int64_t stride) {
    float4 loaded[kLinkInFlight] = {};
#pragma unroll
    for (int i = 0; i < kLinkInFlight; ++i) {
      if (base + i * stride < vectors) loaded[i] = __ldcs(source + base + i * stride);
    }
#pragma unroll
    for (const float4& vector : loaded) sum += vector.x + vector.y + vector.z + vector.w;
  });
  keep(sum, target);
}

__global__ void __launch_bounds__(kLinkThreads) link_write(float4* target, std::int64_t vectors) {
  for_each_step(vectors, [&](std::int64_t base, std::int64_t stride) {
#pragma unroll
    for (int i = 0; i < kLinkInFlight; ++i) {
      if (base + i * stride < vectors) __stcs(target + base + i * stride, float4{1, 2, 3, 4});
    }
  });
}

}  // namespace

void launch_link_read(const void* source, void* target, std::int64_t bytes, int ctas, cudaStream_t stream) {
  link_read<<<static_cast<unsigned>(ctas), kLinkThreads, 0, stream>>>(static_cast<const float4*>(source),
                                                                      target, bytes / 16);
}
void launch_link_write(void* target, std::int64_t bytes, int ctas, cudaStream_t stream) {
  link_write<<<static_cast<unsigned>(ctas), kLinkThreads, 0, stream>>>(static_cast<float4*>(target),
                                                                       bytes / 16);
}

}  // namespace tilescope
