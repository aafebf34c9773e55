// SPDX-License-Identifier: Apache-2.0
// Rounding between fp32 and the narrower element types, round to nearest even, as the GPU converts them:
// fp16 and bf16 overflow to infinity, fp8 saturates (cvt.rn.satfinite) and keeps NaN.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

std::uint16_t fp32_to_fp16(float value);
std::uint16_t fp32_to_bf16(float value);
std::uint8_t fp32_to_fp8e4m3(float value);
std::uint8_t fp32_to_fp8e5m2(float value);
float fp16_to_fp32(std::uint16_t bits);
float bf16_to_fp32(std::uint16_t bits);
float fp8e4m3_to_fp32(std::uint8_t bits);
float fp8e5m2_to_fp32(std::uint8_t bits);

/// Reads `count` elements of `type` at `source` into fp32.
void widen(ElementType type, const void* source, float* destination, std::int64_t count);
/// Rounds `count` fp32 values to `type` and stores them at `destination`.
void narrow(ElementType type, const float* source, void* destination, std::int64_t count);
/// Replaces each value by its nearest in `type`. Nothing happens for fp32.
void round_to(ElementType type, float* values, std::int64_t count);

/// Spacing of the numbers of `type` next to 1 (its machine epsilon).
double epsilon(ElementType type);

}  // namespace tilescope
