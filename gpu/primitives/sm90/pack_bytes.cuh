// SPDX-License-Identifier: Apache-2.0
// Between fp32 and the 8-bit types.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::sm90 {

/// Two numbers, rounded to the nearest of the type or to its largest; `low` in the low byte of 16 bits.
template <WgmmaType kType>
__device__ __forceinline__ std::uint16_t pack_bytes(float low, float high) {
  static_assert(of_bytes(kType));
  std::uint16_t pair;
  if constexpr (kType == WgmmaType::e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// Four bytes again, from the lowest on.
template <WgmmaType kType>
__device__ __forceinline__ float4 unpack_bytes(std::uint32_t bytes) {
  static_assert(of_bytes(kType));
  float4 numbers;
  const auto widen = [](std::uint16_t pair) {
    std::uint32_t halves;
    if constexpr (kType == WgmmaType::e4m3) {
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    } else {
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
    }
    return __half22float2(reinterpret_cast<const __half2&>(halves));
  };
  const float2 low = widen(static_cast<std::uint16_t>(bytes)),
               high = widen(static_cast<std::uint16_t>(bytes >> 16));
  numbers = {low.x, low.y, high.x, high.y};
  return numbers;
}

}  // namespace tilescope::gpu::sm90
