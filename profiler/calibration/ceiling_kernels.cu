// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/kernels.hpp"

namespace tilescope {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 16;  // of 16 bytes a thread, in flight together
static_assert(kStreamGrain == kThreads * kVectors * 16);

constexpr int kL2Rounds = 16;  // so that the first touch of each line does not count for much
constexpr int kL2Blocks = 4;   // a SM
constexpr int kL2Threads = 512;
constexpr int kL2InFlight = 4;

constexpr int kSharedThreads = 1024;
constexpr int kSharedRounds = 4096;
constexpr int kSharedInFlight = 8;

constexpr int kFp32Threads = 1024;
constexpr int kFp32Blocks = 2;  // a SM
constexpr int kFp32Rounds = 4096;
constexpr int kFp32Chains = 16;  // independent, so that latency is hidden

__device__ std::int64_t vector_index(int i) {
  return (std::int64_t{blockIdx.x} * kVectors + i) * kThreads + threadIdx.x;
}

__global__ void stream_read(const float4* source, void* target) {
  float4 vectors[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) vectors[i] = __ldcs(source + vector_index(i));
  float sum = 0;
#pragma unroll
  for (const float4& vector : vectors) sum += vector.x + vector.y + vector.z + vector.w;
  keep(sum, target);
}

__global__ void stream_write(float4* target) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) __stcs(target + vector_index(i), float4{1, 2, 3, 4});
}

/// @param mask number of vectors, a power of two, less one
__global__ void __launch_bounds__(kL2Threads)
    l2_read(const float4* source, std::uint32_t mask, void* target) {
  float sum = 0;
  // CTAs begin at different places, so that they do not all ask the same slice of L2.
  std::uint32_t index = (mask + 1) / gridDim.x * blockIdx.x + threadIdx.x;
  const std::uint32_t steps = kL2Rounds * ((mask + 1) / (kL2InFlight * kL2Threads));
  for (std::uint32_t step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < kL2InFlight; ++i) {
      const float4 vector = __ldcg(source + ((index + i * kL2Threads) & mask));
      sum += vector.x + vector.y + vector.z + vector.w;
    }
    index += kL2InFlight * kL2Threads;
  }
  keep(sum, target);
}

__global__ void __launch_bounds__(kSharedThreads) shared_read(void* target) {
  __shared__ float4 data[kSharedThreads];
  data[threadIdx.x] = {1, 2, 3, 4};
  __syncthreads();
  float sum = 0;
  unsigned index = threadIdx.x;
  for (int round = 0; round < kSharedRounds; ++round) {
    // Each load has another address, else the compiler would keep the value; a warp's stay side by side.
#pragma unroll
    for (int i = 0; i < kSharedInFlight; ++i) {
      const float4 vector = data[(index + 32 * i) % kSharedThreads];
      sum += vector.x + vector.y + vector.z + vector.w;
    }
    index += 32 * kSharedInFlight;
  }
  keep(sum, target);
}

__global__ void __launch_bounds__(kFp32Threads) fp32_multiply_add(void* target, float factor, float summand) {
  float values[kFp32Chains];
#pragma unroll
  for (int i = 0; i < kFp32Chains; ++i) values[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 32
  for (int round = 0; round < kFp32Rounds; ++round) {
#pragma unroll
    for (float& value : values) value = fmaf(value, factor, summand);
  }
  float sum = 0;
#pragma unroll
  for (const float value : values) sum += value;
  keep(sum, target);
}

/// Clears the exponent's top bit in every byte, which holds it in all 8- and 16-bit formats: sizes stay
/// below 2.
__global__ void fill(std::uint32_t* target) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::uint32_t bits = static_cast<std::uint32_t>(index) * 2654435761u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  target[index] = bits & 0xbfbfbfbfu;
}

unsigned stream_blocks(std::int64_t bytes) { return static_cast<unsigned>(bytes / kStreamGrain); }

}  // namespace

void launch_stream_read(const void* source, void* target, std::int64_t bytes, cudaStream_t stream) {
  stream_read<<<stream_blocks(bytes), kThreads, 0, stream>>>(static_cast<const float4*>(source), target);
}

void launch_stream_write(void* target, std::int64_t bytes, cudaStream_t stream) {
  stream_write<<<stream_blocks(bytes), kThreads, 0, stream>>>(static_cast<float4*>(target));
}

std::int64_t launch_l2_read(const void* source, void* target, std::int64_t bytes, int sms,
                            cudaStream_t stream) {
  l2_read<<<kL2Blocks * sms, kL2Threads, 0, stream>>>(static_cast<const float4*>(source),
                                                      static_cast<std::uint32_t>(bytes / 16 - 1), target);
  return kL2Rounds * kL2Blocks * bytes * sms;
}

std::int64_t launch_shared_read(void* target, int sms, cudaStream_t stream) {
  shared_read<<<2 * sms, kSharedThreads, 0, stream>>>(target);
  return std::int64_t{2} * sms * kSharedThreads * kSharedRounds * kSharedInFlight * 16;
}

std::int64_t launch_fp32(void* target, int sms, cudaStream_t stream) {
  fp32_multiply_add<<<kFp32Blocks * sms, kFp32Threads, 0, stream>>>(target, 0.999f, 0.001f);
  return std::int64_t{2} * kFp32Blocks * sms * kFp32Threads * kFp32Rounds * kFp32Chains;
}

void launch_fill(void* target, std::int64_t bytes, cudaStream_t stream) {
  fill<<<static_cast<unsigned>(bytes / (4 * kThreads)), kThreads, 0, stream>>>(
      static_cast<std::uint32_t*>(target));
}

}  // namespace tilescope
