// SPDX-License-Identifier: Apache-2.0
// The sixteen hardware barriers of a CTA; 0 is that of __syncthreads. `threads` counts those that wait and
// those that only arrive, a multiple of 32.
#pragma once

namespace tilescope::gpu::sm90 {

__device__ __forceinline__ void sync_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Whether any of the `threads` says so; all wait for all.
__device__ __forceinline__ bool any_at_named(int barrier, int threads, bool mine) {
  unsigned any;
  asm volatile(
      "{\n.reg .pred mine, any;\nsetp.ne.u32 mine, %3, 0;\nbar.red.or.pred any, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, any;\n}"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<unsigned>(mine))
      : "memory");
  return any != 0;
}

}  // namespace tilescope::gpu::sm90
