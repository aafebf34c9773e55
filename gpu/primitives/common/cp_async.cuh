// SPDX-License-Identifier: Apache-2.0
// cp.async: copies from global to shared memory that run beside the arithmetic.
#pragma once

#include <cstdint>

namespace tilescope {

/// Copies the first bytes of 16 past L1 (tiles are read once an SM) and writes zeros for the rest. Without
/// any, it reads nothing.
__device__ __forceinline__ void copy_async_of_16(std::uint32_t shared, const void* global, int source_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(source_bytes)
               : "memory");
}
/// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared, const void* global, bool valid) {
  copy_async_of_16(shared, global, valid ? 16 : 0);
}

/// Copies the first `count` of four floats, and writes zeros for the rest.
__device__ __forceinline__ void copy_async_floats(std::uint32_t shared, const float* global, int count) {
  copy_async_of_16(shared, global, 4 * max(0, min(4, count)));
}

/// Copies 4 bytes, or writes zero.
__device__ __forceinline__ void copy_async_4(std::uint32_t shared, const void* global, bool valid) {
  const int source_bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(source_bytes)
               : "memory");
}

/// Closes the group of copies that this thread has issued since the last call; it may be empty.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `kPending` of this thread's groups are unfinished. A barrier must follow before other
/// threads read what arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tilescope
