// SPDX-License-Identifier: Apache-2.0
// The narrow types: their scalar definitions against the formats' tables, the vector conversions against the
// scalar ones, for every value and every rounding boundary.
#include "cpu_ref/numeric/numeric.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/cpu_ref/instruction_sets.hpp"

namespace tilescope {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr ElementType kNarrowTypes[] = {ElementType::fp16, ElementType::bf16, ElementType::fp8e4m3,
                                        ElementType::fp8e5m2};

std::uint32_t encode(ElementType type, float value) {
  switch (type) {
    case ElementType::fp16:
      return fp32_to_fp16(value);
    case ElementType::bf16:
      return fp32_to_bf16(value);
    case ElementType::fp8e4m3:
      return fp32_to_fp8e4m3(value);
    default:
      return fp32_to_fp8e5m2(value);
  }
}

float decode(ElementType type, std::uint32_t bits) {
  switch (type) {
    case ElementType::fp16:
      return fp16_to_fp32(static_cast<std::uint16_t>(bits));
    case ElementType::bf16:
      return bf16_to_fp32(static_cast<std::uint16_t>(bits));
    case ElementType::fp8e4m3:
      return fp8e4m3_to_fp32(static_cast<std::uint8_t>(bits));
    default:
      return fp8e5m2_to_fp32(static_cast<std::uint8_t>(bits));
  }
}

std::uint32_t patterns(ElementType type) { return element_bytes(type) == 1 ? 256u : 65536u; }

/// Every value of the type, every midpoint of neighbours, the fp32 numbers on both sides of each, and the
/// extremes of fp32: wherever a rounding can go one way or the other.
std::vector<float> boundary_values(ElementType type) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               kFloatInfinity,
                               -kFloatInfinity,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               1e-40f,
                               std::numeric_limits<float>::quiet_NaN()};
  const auto with_neighbours = [&](float value) {
    for (float x : {value, std::nextafter(value, kFloatInfinity), std::nextafter(value, -kFloatInfinity)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  };
  const std::uint32_t half = patterns(type) / 2;
  for (std::uint32_t bits = 0; bits < half; ++bits) {
    const float value = decode(type, bits);
    if (!std::isfinite(value)) continue;
    with_neighbours(value);
    const float next = decode(type, bits + 1 < half ? bits + 1 : bits);
    if (std::isfinite(next)) {
      with_neighbours(static_cast<float>((static_cast<double>(value) + static_cast<double>(next)) / 2));
    } else {  // where rounding up becomes overflow: half a step beyond the largest value
      const float step = value - decode(type, bits - 1);
      with_neighbours(value + step / 2);
      with_neighbours(value + step);
    }
  }
  return values;
}

TEST_CASE("known values of the narrow types") {
  CHECK(fp32_to_fp16(1.0f) == 0x3C00);
  CHECK(fp32_to_fp16(65504.0f) == 0x7BFF);
  CHECK(fp32_to_fp16(65520.0f) == 0x7C00);  // ties to even: infinity
  CHECK(fp32_to_fp16(0x1p-24f) == 0x0001);
  CHECK(fp32_to_fp16(0x1p-25f) == 0x0000);
  CHECK(fp32_to_bf16(1.0f) == 0x3F80);
  CHECK(fp32_to_bf16(1.00390625f) == 0x3F80);  // 1 + 2^-8, ties to even
  CHECK(fp32_to_bf16(1.01171875f) == 0x3F82);  // 1 + 3 * 2^-8
  CHECK(fp8e4m3_to_fp32(0x7E) == 448.0f);
  CHECK(fp32_to_fp8e4m3(1e6f) == 0x7E);
  CHECK(fp32_to_fp8e4m3(-kFloatInfinity) == 0xFE);
  CHECK(std::isnan(fp8e4m3_to_fp32(0x7F)));
  CHECK(fp8e5m2_to_fp32(0x7B) == 57344.0f);
  CHECK(fp32_to_fp8e5m2(kFloatInfinity) == 0x7B);
  CHECK(fp8e5m2_to_fp32(0x7C) == kFloatInfinity);
}

TEST_CASE("the scalar rounding takes the nearest value, the even one of two") {
  for (ElementType type : kNarrowTypes) {
    CAPTURE(to_string(type));
    for (std::uint32_t bits = 0; bits < patterns(type); ++bits) {
      const float value = decode(type, bits);
      const bool saturates_infinity = is_fp8(type) && std::isinf(value);
      if (!std::isnan(value) && !saturates_infinity) REQUIRE(encode(type, value) == bits);
    }
    for (float value : boundary_values(type)) {
      CAPTURE(value);
      const std::uint32_t bits = encode(type, value);
      const float rounded = decode(type, bits);
      if (std::isnan(value)) {
        REQUIRE(std::isnan(rounded));
        continue;
      }
      const bool saturated = is_fp8(type) && std::fabs(value) > 1e6f;
      if (!std::isfinite(rounded) || !std::isfinite(value) || saturated) continue;
      const double error = std::fabs(static_cast<double>(rounded) - static_cast<double>(value));
      for (std::uint32_t neighbour : {bits - 1, bits + 1}) {
        if ((neighbour ^ bits) & (patterns(type) / 2)) continue;  // the other sign
        const double other = static_cast<double>(decode(type, neighbour));
        if (!std::isfinite(other)) continue;
        const double other_error = std::fabs(other - static_cast<double>(value));
        REQUIRE(error <= other_error);
        if (error == other_error) REQUIRE(bits % 2 == 0);
      }
    }
  }
}

TEST_CASE("the vector conversions are the scalar ones, on every instruction set") {
  testing::for_each_instruction_set([] {
    for (ElementType type : kNarrowTypes) {
      CAPTURE(to_string(type));
      const int size = element_bytes(type);
      const std::uint32_t count = patterns(type);
      std::vector<std::uint8_t> bytes(count * static_cast<unsigned>(size));
      for (std::uint32_t bits = 0; bits < count; ++bits)
        std::memcpy(&bytes[bits * static_cast<unsigned>(size)], &bits, static_cast<std::size_t>(size));
      std::vector<float> wide(count);
      widen(type, bytes.data(), wide.data(), count);
      for (std::uint32_t bits = 0; bits < count; ++bits) {
        const float expected = decode(type, bits);
        REQUIRE(std::bit_cast<std::uint32_t>(wide[bits]) == std::bit_cast<std::uint32_t>(expected));
      }

      const std::vector<float> values = boundary_values(type);
      std::vector<std::uint8_t> narrowed(values.size() * static_cast<std::size_t>(size));
      narrow(type, values.data(), narrowed.data(), static_cast<std::int64_t>(values.size()));
      std::vector<float> rounded = values;
      round_to(type, rounded.data(), static_cast<std::int64_t>(values.size()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        CAPTURE(values[i]);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &narrowed[i * static_cast<std::size_t>(size)], static_cast<std::size_t>(size));
        REQUIRE(bits == encode(type, values[i]));
        const float expected = decode(type, bits);
        if (std::isnan(expected)) {
          REQUIRE(std::isnan(rounded[i]));
        } else {
          REQUIRE(std::bit_cast<std::uint32_t>(rounded[i]) == std::bit_cast<std::uint32_t>(expected));
        }
      }
    }
  });
}

TEST_CASE("conversions touch the elements they are given and no others") {
  testing::for_each_instruction_set([] {
    for (ElementType type : kElementTypes) {
      for (std::int64_t count = 0; count < 40; ++count) {
        std::vector<float> values(static_cast<std::size_t>(count) + 1, 1.5f);
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>((count + 1) * element_bytes(type)), 0xAB);
        narrow(type, values.data(), bytes.data(), count);
        for (std::int64_t i = count * element_bytes(type); i < (count + 1) * element_bytes(type); ++i) {
          REQUIRE(bytes[static_cast<std::size_t>(i)] == 0xAB);
        }
        std::fill(values.begin(), values.end(), -7.0f);
        widen(type, bytes.data(), values.data(), count);
        for (std::int64_t i = 0; i < count; ++i) REQUIRE(values[static_cast<std::size_t>(i)] == 1.5f);
        REQUIRE(values.back() == -7.0f);
        values.back() = 1.0f + 0x1p-20f;
        round_to(type, values.data(), count);
        REQUIRE(values.back() == 1.0f + 0x1p-20f);
      }
    }
  });
}

}  // namespace
}  // namespace tilescope
