// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/kernels.hpp"

namespace tilescope {
namespace {

constexpr unsigned kNapNanoseconds = 1000;
constexpr int kThreads = 1024;
constexpr int kChains = 8;   // of multiply-adds, independent, so that latency is hidden
constexpr int kRounds = 64;  // some microseconds between two looks at the clock
constexpr int kInFlight = 4;
static_assert(kRewriteGrain == kRewritingCtas * kThreads * kInFlight * std::int64_t{sizeof(float4)});

__device__ long long nanoseconds_now() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void sleep_for(long long nanoseconds) {
  const long long begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) __nanosleep(kNapNanoseconds);
}

__global__ void __launch_bounds__(kThreads)
    compute_for(long long nanoseconds, float factor, float summand, void* target) {
  float values[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) values[i] = static_cast<float>(threadIdx.x + i);
  const long long begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) {
#pragma unroll 16
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (float& value : values) value = fmaf(value, factor, summand);
    }
  }
  float sum = 0;
#pragma unroll
  for (const float value : values) sum += value;
  keep(sum, target);
}

__global__ void __launch_bounds__(kThreads)
    rewrite_for(long long nanoseconds, float4* data, std::int64_t vectors) {
  const long long begin = nanoseconds_now();
  // The clock is asked after whole passes only: all of the footprint is read, however short the time.
  do {
    for (std::int64_t first = std::int64_t{blockIdx.x} * kInFlight * kThreads + threadIdx.x; first < vectors;
         first += std::int64_t{kRewritingCtas} * kInFlight * kThreads) {
      float4 values[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) values[i] = __ldcg(data + first + i * kThreads);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        values[i].x += 1;
        __stcg(data + first + i * kThreads, values[i]);
      }
    }
  } while (nanoseconds_now() - begin < nanoseconds);
}

}  // namespace

void launch_sleep(std::int64_t nanoseconds, cudaStream_t stream) {
  sleep_for<<<1, 32, 0, stream>>>(nanoseconds);
}

void launch_compute(void* target, int sms, std::int64_t nanoseconds, cudaStream_t stream) {
  compute_for<<<sms, kThreads, 0, stream>>>(nanoseconds, 0.999f, 0.001f, target);
}

void launch_rewrite(void* data, std::int64_t bytes, std::int64_t nanoseconds, cudaStream_t stream) {
  rewrite_for<<<kRewritingCtas, kThreads, 0, stream>>>(nanoseconds, static_cast<float4*>(data),
                                                       bytes / std::int64_t{sizeof(float4)});
}

}  // namespace tilescope
