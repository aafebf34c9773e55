// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "profiler/calibration/kernels.hpp"

namespace tilescope {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 16;
constexpr std::int64_t kVectors = kCalibrationBytes / 16;
constexpr int kBlocks = kVectors / (kThreads * kVectorsPerThread);
constexpr int kBlockBytes = kThreads * kVectorsPerThread * 16;  // 64 KiB, each CTA's own part
constexpr int kStageBytes = 16 * 1024;                          // of it in shared memory at a time
constexpr int kStages = kBlockBytes / kStageBytes;
constexpr int kMulticastCtas = 2;
static_assert(kCalibrationBytes % kBlockBytes == 0);

__device__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Stores where a sum that cannot be would ask for it, so that no load is optimised away.
__device__ void keep(float sum, void* target) {
  if (sum == 12345.678f) *static_cast<float*>(target) = sum;
}

__global__ void load_kernel(const float4* source, void* target) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const float4 vector = source[(std::int64_t{blockIdx.x} * kVectorsPerThread + i) * kThreads + threadIdx.x];
    sum += vector.x + vector.y + vector.z + vector.w;
  }
  keep(sum, target);
}

__global__ void store_kernel(float4* target) {
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    target[(std::int64_t{blockIdx.x} * kVectorsPerThread + i) * kThreads + threadIdx.x] = {1, 2, 3, 4};
  }
}

__global__ void copy_kernel(const float4* source, float4* target) {
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const std::int64_t index = (std::int64_t{blockIdx.x} * kVectorsPerThread + i) * kThreads + threadIdx.x;
    target[index] = source[index];
  }
}

/// One fp32 reduction (an atomic whose result nobody asks for) an element.
__global__ void reduce_kernel(float* target) {
  for (int i = 0; i < 4 * kVectorsPerThread; ++i) {
    float* element = target + (std::int64_t{blockIdx.x} * 4 * kVectorsPerThread + i) * kThreads + threadIdx.x;
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(element), "f"(1.0f) : "memory");
  }
}

__global__ void cp_async_kernel(const char* source, void* target) {
  __shared__ alignas(128) char stage[kStageBytes];
  const char* mine = source + std::int64_t{blockIdx.x} * kBlockBytes;
  float sum = 0;
  for (int s = 0; s < kStages; ++s) {
    for (int offset = 16 * threadIdx.x; offset < kStageBytes; offset += 16 * kThreads) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(stage + offset)),
                   "l"(mine + s * kStageBytes + offset)
                   : "memory");
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    sum += reinterpret_cast<const float*>(stage)[threadIdx.x];
    __syncthreads();
  }
  keep(sum, target);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define TILESCOPE_HAS_BULK_COPY 1
#endif

/// Bulk copies by the TMA unit, global to shared, one a stage, completing on an mbarrier.
__global__ void tma_load_kernel(const char* source, void* target) {
#ifdef TILESCOPE_HAS_BULK_COPY
  __shared__ alignas(128) char stage[kStageBytes];
  __shared__ alignas(8) std::uint64_t barrier;
  const std::uint32_t bar = shared_address(&barrier);
  const char* mine = source + std::int64_t{blockIdx.x} * kBlockBytes;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float sum = 0;
  for (int s = 0; s < kStages; ++s) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(kStageBytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              shared_address(stage)),
          "l"(mine + s * kStageBytes), "r"(kStageBytes), "r"(bar)
          : "memory");
    }
    asm volatile(
        "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "wait;\n}" ::"r"(bar),
        "r"(s & 1)
        : "memory");
    sum += reinterpret_cast<const float*>(stage)[threadIdx.x];
    __syncthreads();
  }
  keep(sum, target);
#endif
}

/// Each CTA's bulk copies go to both CTAs of its cluster.
__global__ void tma_multicast_kernel(const char* source, void* target) {
#ifdef TILESCOPE_HAS_BULK_COPY
  __shared__ alignas(128) char stage[kMulticastCtas * kStageBytes];
  __shared__ alignas(8) std::uint64_t barrier;
  const std::uint32_t bar = shared_address(&barrier);
  const char* mine = source + std::int64_t{blockIdx.x} * kBlockBytes;
  std::uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  const auto synchronize_cluster = [] {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  };
  synchronize_cluster();
  float sum = 0;
  for (int s = 0; s < kStages; ++s) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                   "r"(kMulticastCtas * kStageBytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], "
          "%2, "
          "[%3], %4;" ::"r"(shared_address(stage + rank * kStageBytes)),
          "l"(mine + s * kStageBytes), "r"(kStageBytes), "r"(bar),
          "h"(static_cast<std::uint16_t>((1 << kMulticastCtas) - 1))
          : "memory");
    }
    asm volatile(
        "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "wait;\n}" ::"r"(bar),
        "r"(s & 1)
        : "memory");
    sum += reinterpret_cast<const float*>(stage)[threadIdx.x];
    synchronize_cluster();  // the other CTA may write here only after this one has read
  }
  keep(sum, target);
#endif
}

void launch_multicast(const void* source, void* target, cudaStream_t stream) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kMulticastCtas, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, tma_multicast_kernel, static_cast<const char*>(source), target);
}

/// Bulk copies by the TMA unit, shared to global.
__global__ void tma_store_kernel(char* target) {
#ifdef TILESCOPE_HAS_BULK_COPY
  __shared__ alignas(128) char stage[kStageBytes];
  for (int offset = 4 * threadIdx.x; offset < kStageBytes; offset += 4 * kThreads) {
    *reinterpret_cast<float*>(stage + offset) = 1.0f;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kStages; ++s) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     target + std::int64_t{blockIdx.x} * kBlockBytes + s * kStageBytes),
                 "r"(shared_address(stage)), "r"(kStageBytes)
                 : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

}  // namespace

const std::vector<CalibrationKernel>& calibration_kernels() {
  constexpr std::int64_t kBytes = kCalibrationBytes;
  static const std::vector<CalibrationKernel> all = {
      {"load",
       {kBytes, 0, kBytes, 0},
       80,
       [](const void* source, void* target, cudaStream_t stream) {
         load_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const float4*>(source), target);
       }},
      {"cp.async",
       {kBytes, 0, kBytes, 0},
       80,
       [](const void* source, void* target, cudaStream_t stream) {
         cp_async_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const char*>(source), target);
       }},
      {"TMA load",
       {kBytes, 0, kBytes, 0},
       90,
       [](const void* source, void* target, cudaStream_t stream) {
         tma_load_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const char*>(source), target);
       }},
      {"TMA multicast", {kMulticastCtas * kBytes, 0, kBytes, 0, kMulticastCtas}, 90, launch_multicast},
      {"store",
       {0, kBytes, 0, kBytes},
       80,
       [](const void*, void* target, cudaStream_t stream) {
         store_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<float4*>(target));
       }},
      {"TMA store",
       {0, kBytes, 0, kBytes},
       90,
       [](const void*, void* target, cudaStream_t stream) {
         tma_store_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<char*>(target));
       }},
      {"copy",
       {kBytes, kBytes, kBytes, kBytes},
       80,
       [](const void* source, void* target, cudaStream_t stream) {
         copy_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const float4*>(source),
                                                       static_cast<float4*>(target));
       }},
      // L2 fetches a line to add to it and writes it back later.
      {"fp32 reduction",
       {0, kBytes, kBytes, kBytes},
       80,
       [](const void*, void* target, cudaStream_t stream) {
         reduce_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<float*>(target));
       }},
  };
  return all;
}

}  // namespace tilescope
