// SPDX-License-Identifier: Apache-2.0
// The definitions, one value at a time; numeric_vector.cpp converts many.
#include "cpu_ref/numeric/numeric.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu_ref/numeric/float_format.hpp"

namespace tilescope {
namespace {

/// Nearest value of `format`, ties to even.
constexpr std::uint32_t encode(const FloatFormat& format, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31 ? format.sign_bit() : 0u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | format.nan;
  const int field = static_cast<int>(magnitude >> 23);
  const int rebias = format.bias() - 127;
  std::uint64_t mantissa = magnitude & 0x7FFFFFu;
  int shift = 23 - format.mantissa_bits;
  if (field + rebias >= 1) {
    mantissa |= static_cast<std::uint64_t>(field + rebias) << 23;
  } else {  // subnormal in the target: the hidden bit, where there is one, becomes explicit
    if (field > 0) mantissa |= 0x800000u;
    shift = std::min(40, shift + 1 - (std::max(field, 1) + rebias));
  }
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t odd = (mantissa >> shift) & 1u;
  const std::uint64_t rounded = (mantissa + half - 1 + odd) >> shift;
  if (rounded > format.max_finite) return sign | format.overflow();
  return sign | static_cast<std::uint32_t>(rounded);
}

constexpr float decode(const FloatFormat& format, std::uint32_t bits) {
  const bool negative = bits & format.sign_bit();
  const std::uint32_t magnitude = bits & (format.sign_bit() - 1);
  const std::uint32_t exponent = magnitude >> format.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const std::uint32_t top = (1u << format.exponent_bits) - 1;
  float value = 0.0f;
  if (format.has_infinity ? (exponent == top && mantissa != 0) : magnitude == format.nan) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (format.has_infinity && exponent == top) {
    value = std::numeric_limits<float>::infinity();
  } else {
    const int scale = static_cast<int>(exponent ? exponent : 1) - format.bias() - format.mantissa_bits;
    const std::uint32_t significand = exponent ? mantissa | (1u << format.mantissa_bits) : mantissa;
    value = static_cast<float>(std::ldexp(static_cast<double>(significand), scale));
  }
  return negative ? -value : value;
}

const FloatFormat& format_of(ElementType type) {
  switch (type) {
    case ElementType::fp16:
      return kFp16;
    case ElementType::bf16:
      return kBf16;
    case ElementType::fp8e4m3:
      return kFp8e4m3;
    default:
      return kFp8e5m2;
  }
}

/// All values of an 8-bit format.
std::array<float, 256> fp8_table(const FloatFormat& format) {
  std::array<float, 256> table{};
  for (std::uint32_t bits = 0; bits < 256; ++bits) table[bits] = decode(format, bits);
  return table;
}

}  // namespace

std::uint16_t fp32_to_fp16(float value) { return static_cast<std::uint16_t>(encode(kFp16, value)); }
std::uint16_t fp32_to_bf16(float value) { return static_cast<std::uint16_t>(encode(kBf16, value)); }
std::uint8_t fp32_to_fp8e4m3(float value) { return static_cast<std::uint8_t>(encode(kFp8e4m3, value)); }
std::uint8_t fp32_to_fp8e5m2(float value) { return static_cast<std::uint8_t>(encode(kFp8e5m2, value)); }
float fp16_to_fp32(std::uint16_t bits) { return decode(kFp16, bits); }
float bf16_to_fp32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
float fp8e4m3_to_fp32(std::uint8_t bits) {
  static const std::array<float, 256> table = fp8_table(kFp8e4m3);
  return table[bits];
}
float fp8e5m2_to_fp32(std::uint8_t bits) {
  static const std::array<float, 256> table = fp8_table(kFp8e5m2);
  return table[bits];
}

double epsilon(ElementType type) {
  return type == ElementType::fp32 ? 0x1p-23 : std::ldexp(1.0, -format_of(type).mantissa_bits);
}

}  // namespace tilescope
