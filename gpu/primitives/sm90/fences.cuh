// SPDX-License-Identifier: Apache-2.0
// Orders between the ways of reaching shared memory.
#pragma once

namespace tilescope::gpu::sm90 {

/// Makes this thread's shared-memory stores visible to the copy engine and the tensor cores. Then a barrier.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Counts up in global memory, after everything that this thread has written and knows to be written.
__device__ __forceinline__ void count_up(int* count) {
  asm volatile("fence.proxy.async.global;\nred.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}
/// Until that many have; what they wrote is then there.
__device__ __forceinline__ void wait_for_count(const int* count, int enough) {
  int counted;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(counted) : "l"(count) : "memory");
  } while (counted < enough);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace tilescope::gpu::sm90
