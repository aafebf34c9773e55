// SPDX-License-Identifier: Apache-2.0
// The sm_80 tensor-core instruction, and the conversions between its fp32 accumulators and 16-bit operands.
// Register layouts: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope::sm80 {

/// A 16 x 16 operand of 16-bit elements, spread over a warp: four 8 x 8 matrices, two elements a register.
struct Fragment {
  std::uint32_t x[4];
};

/// A 16 x 8 fp32 accumulator, spread over a warp. Lane l holds row l / 4, columns 2 * (l % 4) and the next in
/// x[0], x[1], and the same columns of row l / 4 + 8 in x[2], x[3].
struct Accumulator {
  float x[4];
};

/// acc += a * b with a 16 x 16 (row major) and b 16 x 8 (column major), products and sums in fp32.
template <ElementType kType>
__device__ __forceinline__ void mma_m16n8k16(Accumulator& acc, const Fragment& a, std::uint32_t b0,
                                             std::uint32_t b1) {
  static_assert(kType == ElementType::fp16 || kType == ElementType::bf16);
  if constexpr (kType == ElementType::fp16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(acc.x[0]), "+f"(acc.x[1]), "+f"(acc.x[2]), "+f"(acc.x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(acc.x[0]), "+f"(acc.x[1]), "+f"(acc.x[2]), "+f"(acc.x[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
  }
}

/// Two fp32 values rounded to nearest even; `low` in the lower half, as the lower column of a fragment.
template <ElementType kType>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  std::uint32_t packed;
  if constexpr (kType == ElementType::fp16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

/// The two elements of a register as fp32. Exact.
template <ElementType kType>
__device__ __forceinline__ float2 unpack(std::uint32_t packed) {
  if constexpr (kType == ElementType::fp16) {
    float2 values;
    asm("{ .reg .f16 low, high;\n mov.b32 {low, high}, %2;\n cvt.f32.f16 %0, low;\n cvt.f32.f16 %1, high; }"
        : "=f"(values.x), "=f"(values.y)
        : "r"(packed));
    return values;
  } else {
    return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000u)};
  }
}

/// Two neighbouring accumulators (16 x 16 values), rounded, as the left operand of the next product: the
/// layouts coincide, so P never leaves the registers.
template <ElementType kType>
__device__ __forceinline__ Fragment as_left_operand(const Accumulator& left, const Accumulator& right) {
  return {{pack<kType>(left.x[0], left.x[1]), pack<kType>(left.x[2], left.x[3]),
           pack<kType>(right.x[0], right.x[1]), pack<kType>(right.x[2], right.x[3])}};
}

}  // namespace tilescope::sm80
