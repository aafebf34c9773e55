// SPDX-License-Identifier: Apache-2.0
// CTAs that run beside each other and reach each other's shared memory.
#pragma once

#include <cstdint>

namespace tilescope::gpu::sm90 {

__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace tilescope::gpu::sm90
