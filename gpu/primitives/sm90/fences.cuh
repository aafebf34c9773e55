// SPDX-License-Identifier: Apache-2.0
// Orders between the ways of reaching shared memory.
#pragma once

namespace tilescope::gpu::sm90 {

/// Makes this thread's shared-memory stores visible to the copy engine and the tensor cores. Then a barrier.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace tilescope::gpu::sm90
