// SPDX-License-Identifier: Apache-2.0
// ldmatrix: four 8 x 8 matrices of 16-bit elements from shared memory into fragments.
#pragma once

#include <cstdint>

#include "gpu/primitives/sm80/mma.cuh"

namespace tilescope::sm80 {

/// Lanes 8 i ... 8 i + 7 give the addresses of the eight 16-byte rows of matrix i, which lands in x[i].
/// @param address in the shared window [bytes], 16-byte aligned
__device__ __forceinline__ Fragment ldmatrix(std::uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(address));
  return f;
}

/// The same with each 8 x 8 matrix transposed.
__device__ __forceinline__ Fragment ldmatrix_transposed(std::uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(address));
  return f;
}

/// Address of a pointer into shared memory in the shared window. [bytes]
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Stores 4 or 16 bytes at an address in the shared window.
__device__ __forceinline__ void store_shared(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared(std::uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
__device__ __forceinline__ float2 load_shared_float2(std::uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address));
  return value;
}

}  // namespace tilescope::sm80
