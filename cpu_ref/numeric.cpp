// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tilescope {
namespace {

/// Layout of a binary format narrower than fp32.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;         // e4m3 has none: its largest exponent holds numbers, and one NaN
  std::uint32_t max_finite;  // bit pattern of the largest finite value
  std::uint32_t nan;
  bool saturates;  // beyond max_finite: to max_finite, not to infinity

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
};

constexpr Format kFp16{5, 10, true, 0x7BFF, 0x7FFF, false};
constexpr Format kBf16{8, 7, true, 0x7F7F, 0x7FFF, false};
constexpr Format kFp8e4m3{4, 3, false, 0x7E, 0x7F, true};
constexpr Format kFp8e5m2{5, 2, true, 0x7B, 0x7F, true};

/// Nearest value of `format`, ties to even.
constexpr std::uint32_t encode(const Format& format, float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 31 ? format.sign_bit() : 0u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | format.nan;
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + format.bias();
  std::uint64_t mantissa = magnitude & 0x7FFFFFu;
  int shift = 23 - format.mantissa_bits;
  std::uint64_t result;
  if (exponent >= 1) {
    result = (static_cast<std::uint64_t>(exponent) << 23) | mantissa;
  } else {  // subnormal in the target: the hidden bit becomes explicit
    if (magnitude >> 23) mantissa |= 0x800000u;
    shift += 1 - exponent;
    if (shift > 40) shift = 40;
    result = mantissa;
  }
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t odd = (result >> shift) & 1u;
  const std::uint64_t rounded = (result + half - 1 + odd) >> shift;
  if (rounded > format.max_finite) {
    return sign | (format.saturates ? format.max_finite : format.max_finite + 1);  // + 1: infinity
  }
  return sign | static_cast<std::uint32_t>(rounded);
}

constexpr float decode(const Format& format, std::uint32_t bits) {
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

const Format& format_of(ElementType type) {
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
std::array<float, 256> fp8_table(const Format& format) {
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

void widen(ElementType type, const void* source, float* destination, std::int64_t count) {
  const auto each = [&](auto element, auto convert) {
    const auto* values = static_cast<const decltype(element)*>(source);
    for (std::int64_t i = 0; i < count; ++i) destination[i] = convert(values[i]);
  };
  switch (type) {
    case ElementType::fp32:
      std::memcpy(destination, source, static_cast<std::size_t>(count) * 4);
      break;
    case ElementType::fp16:
      each(std::uint16_t{}, fp16_to_fp32);
      break;
    case ElementType::bf16:
      each(std::uint16_t{}, bf16_to_fp32);
      break;
    case ElementType::fp8e4m3:
      each(std::uint8_t{}, fp8e4m3_to_fp32);
      break;
    case ElementType::fp8e5m2:
      each(std::uint8_t{}, fp8e5m2_to_fp32);
      break;
  }
}

void narrow(ElementType type, const float* source, void* destination, std::int64_t count) {
  const auto each = [&](auto element, auto convert) {
    auto* values = static_cast<decltype(element)*>(destination);
    for (std::int64_t i = 0; i < count; ++i) values[i] = convert(source[i]);
  };
  switch (type) {
    case ElementType::fp32:
      std::memcpy(destination, source, static_cast<std::size_t>(count) * 4);
      break;
    case ElementType::fp16:
      each(std::uint16_t{}, fp32_to_fp16);
      break;
    case ElementType::bf16:
      each(std::uint16_t{}, fp32_to_bf16);
      break;
    case ElementType::fp8e4m3:
      each(std::uint8_t{}, fp32_to_fp8e4m3);
      break;
    case ElementType::fp8e5m2:
      each(std::uint8_t{}, fp32_to_fp8e5m2);
      break;
  }
}

void round_to(ElementType type, float* values, std::int64_t count) {
  if (type == ElementType::fp32) return;
  const Format& format = format_of(type);
  for (std::int64_t i = 0; i < count; ++i) values[i] = decode(format, encode(format, values[i]));
}

double epsilon(ElementType type) {
  return type == ElementType::fp32 ? 0x1p-23 : std::ldexp(1.0, -format_of(type).mantissa_bits);
}

}  // namespace tilescope
