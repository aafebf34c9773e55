// SPDX-License-Identifier: Apache-2.0
// Orders between the ways of reaching shared memory, and between a kernel and the next in its stream.
#pragma once

namespace tilescope::gpu::sm90 {

/// Makes this thread's shared-memory stores visible to the copy engine and the tensor cores. Then a barrier.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// From here on the next kernel in the stream may be set up, as far as there is room, if it was launched so.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Until the kernel before has ended and its writes are to be seen, where this one may begin earlier.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Counts up in global memory, after everything that this thread has written and knows to be written.
__device__ __forceinline__ void count_up(int* count) {
  asm volatile("fence.proxy.async.global;\nred.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}
/// Claims what a word in global memory stands for, which is 0 until somebody does, and which the same one
/// counts up when it is there. @return the word before: 0 for who has it now; 2 if all is there
__device__ __forceinline__ int claim(int* word) {
  int before;
  asm volatile(
      "atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;\n"
      "fence.proxy.async.global;"
      : "=r"(before)
      : "l"(word)
      : "memory");
  return before;
}
/// How many have; what they wrote is there.
__device__ __forceinline__ int count_at(const int* count) {
  int counted;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\nfence.proxy.async.global;"
               : "=r"(counted)
               : "l"(count)
               : "memory");
  return counted;
}
/// Until that many have.
__device__ __forceinline__ void wait_for_count(const int* count, int enough) {
  while (count_at(count) < enough) {
  }
}

}  // namespace tilescope::gpu::sm90
