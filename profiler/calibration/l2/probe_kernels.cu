// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/kernels.hpp"
#include "profiler/calibration/l2/probe_kernels.hpp"
#include "profiler/driver/runtime_check.hpp"

namespace tilescope {
namespace {

constexpr int kChunkThreads = 1024;
static_assert(kL2Chunk == kChunkThreads * 16);

// Long enough for all SMs to be given a CTA before one of them ends, which would free its SM for another.
constexpr long long kStayClocks = 200'000;
constexpr int kAtomicsTimed = 12;

__device__ int sm_id() {
  int id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

__device__ void stay() {
  const long long begin = clock64();
  while (clock64() - begin < kStayClocks) {
  }
}

template <bool Reduce>
__global__ void __launch_bounds__(kChunkThreads)
    l2_rounds(float4* data, const std::int32_t* chunk_at, const std::int32_t* partition_of_sm, int chunks,
              int stride, int rounds) {
  if (partition_of_sm && partition_of_sm[sm_id()] != 0) return;
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int chunk = stride == 1 ? 0 : static_cast<int>(blockIdx.x); chunk < chunks; chunk += stride) {
      const std::int64_t place = chunk_at ? chunk_at[chunk] : chunk;
      float4* vector = data + place * kChunkThreads + threadIdx.x;
      if constexpr (Reduce) {
        for (int i = 0; i < 4; ++i) atomicAdd(reinterpret_cast<float*>(vector) + i, 0.0f);
      } else {
        const float4 value = __ldcg(vector);
        sum += value.x + value.y + value.z + value.w;
      }
    }
  }
  keep(sum, data);
}

__global__ void sm_ids(std::int32_t* sm_of_cta) {
  if (threadIdx.x == 0) sm_of_cta[blockIdx.x] = sm_id();
  stay();
}

__global__ void atomic_latency(std::uint32_t* lines, int count, int sm, std::uint32_t* clocks) {
  if (sm_id() != sm) return stay();
  if (threadIdx.x != 0) return;
  // A store of what an atomic returned waits for it: without one the clock would be read while it is under
  // way, and an atomic whose result nobody uses is not waited for at all.
  extern __shared__ volatile std::uint32_t arrived[];
  for (int i = 0; i < count; ++i) {
    std::uint32_t* line = lines + i * (kLatencyStride / std::int64_t{sizeof *lines});
    std::uint32_t value = atomicAdd(line, 0u);  // brings the line
    arrived[0] = value;
    const auto begin = static_cast<std::uint32_t>(clock64());
    for (int atomic = 0; atomic < kAtomicsTimed; ++atomic) value = atomicAdd(line + value, 0u);
    arrived[0] = value;
    clocks[i] = (static_cast<std::uint32_t>(clock64()) - begin) / kAtomicsTimed;
  }
}

template <typename Kernel>
void give_shared(Kernel* kernel, int bytes) {
  check_runtime(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                "shared memory of a whole SM");
}

}  // namespace

void launch_l2_rounds(L2Access access, const L2Footprint& footprint, int rounds, int sms,
                      cudaStream_t stream) {
  const bool whole = access == L2Access::read_by_all || access == L2Access::read_by_partition;
  const auto kernel = access == L2Access::reduced_by_one ? l2_rounds<true> : l2_rounds<false>;
  kernel<<<sms, kChunkThreads, 0, stream>>>(
      static_cast<float4*>(footprint.data), footprint.chunk_at,
      access == L2Access::read_by_partition ? footprint.partition_of_sm : nullptr,
      static_cast<int>(footprint.bytes / kL2Chunk), whole ? 1 : sms, rounds);
}

void launch_sm_ids(std::int32_t* sm_of_cta, int ctas, int shared_bytes, cudaStream_t stream) {
  give_shared(sm_ids, shared_bytes);
  sm_ids<<<ctas, 32, static_cast<std::size_t>(shared_bytes), stream>>>(sm_of_cta);
}

void launch_atomic_latency(std::uint32_t* lines, int count, int sm, std::uint32_t* clocks, int sms,
                           int shared_bytes, cudaStream_t stream) {
  give_shared(atomic_latency, shared_bytes);
  atomic_latency<<<sms, 32, static_cast<std::size_t>(shared_bytes), stream>>>(lines, count, sm, clocks);
}

}  // namespace tilescope
