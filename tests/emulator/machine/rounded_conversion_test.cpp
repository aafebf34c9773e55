// SPDX-License-Identifier: Apache-2.0
// Conversions that round in a direction, and those that would round twice by the host's, by the PTX ISA.
#include <doctest/doctest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <random>

#include "tests/emulator/machine/check_values.hpp"

namespace tilescope::gpu::emulator::rounded_conversion_test {

using testing::bits;
using testing::bits_of;
using testing::check_values;
using testing::kNan;
using testing::number;
using testing::upper;

/// From the 32 bits that `mov` puts into %r1 and %f1, a half in %h4.
std::string to_half(const std::string& value, const std::string& instruction) {
  return "mov.b32 %r1, " + value + ";\nmov.b32 %f1, %r1;\n" + instruction + ";\ncvt.u32.u16 %r10, %h4";
}

TEST_CASE("emulator: conversions to halves round in every direction, once, and overflow as they round") {
  const std::string third = number(1.0f / 3), minus_third = number(-1.0f / 3), large = number(65535.0f);
  check_values({
      {to_half(third, "cvt.rn.f16.f32 %h4, %f1"), 0x3555},
      {to_half(third, "cvt.rz.f16.f32 %h4, %f1"), 0x3555},
      {to_half(third, "cvt.rp.f16.f32 %h4, %f1"), 0x3556},
      {to_half(minus_third, "cvt.rm.f16.f32 %h4, %f1"), 0xb556},
      {to_half(minus_third, "cvt.rz.f16.f32 %h4, %f1"), 0xb555},
      {to_half(large, "cvt.rn.f16.f32 %h4, %f1"), 0x7c00},
      {to_half(large, "cvt.rz.f16.f32 %h4, %f1"), 0x7bff},
      {to_half(large, "cvt.rm.f16.f32 %h4, %f1"), 0x7bff},
      {to_half(large, "cvt.rp.f16.f32 %h4, %f1"), 0x7c00},
      {to_half(number(1e-9f), "cvt.rp.f16.f32 %h4, %f1"), 0x0001},
      {to_half(number(-1e-9f), "cvt.rz.f16.f32 %h4, %f1"), 0x8000},
      {to_half("0x7FC00000", "cvt.rz.f16.f32 %h4, %f1"), 0x7fff},
      {to_half(third, "cvt.rz.bf16.f32 %h4, %f1"), 0x3eaa},
      {to_half(third, "cvt.rp.bf16.f32 %h4, %f1"), 0x3eab},
      {to_half(minus_third, "cvt.rn.relu.f16.f32 %h4, %f1"), 0},
      // 2049 and 2051 lie halfway between halves; a number of 25 bits would be rounded twice by way of fp32.
      {to_half("2049", "cvt.rn.f16.s32 %h4, %r1"), 0x6800},
      {to_half("2051", "cvt.rn.f16.u32 %h4, %r1"), 0x6802},
      {to_half("-2049", "cvt.rm.f16.s32 %h4, %r1"), 0xe801},
      {to_half("70000", "cvt.rn.f16.s32 %h4, %r1"), 0x7c00},
      {to_half("0x01010001", "cvt.rn.bf16.u32 %h4, %r1"), 0x4b81},
      {"mov.u64 %rd1, 0x4068040000000001;\ncvt.rn.bf16.f64 %h4, %rd1;\ncvt.u32.u16 %r10, %h4", 0x4340},
  });
}

TEST_CASE("emulator: conversions to fp32, tf32 and fp64 round in every direction") {
  const auto of_whole = [](const char* instruction) {
    return bits(std::string("mov.u32 %r1, 16777217;\n") + instruction + " %f10, %r1");
  };
  check_values({
      {of_whole("cvt.rn.f32.s32"), 0x4b800000},
      {of_whole("cvt.rp.f32.u32"), 0x4b800001},
      {of_whole("cvt.rz.f32.s32"), 0x4b800000},
      {bits("mov.u64 %rd1, -16777217;\ncvt.rm.f32.s64 %f10, %rd1"), 0xcb800001},
      {bits("mov.f64 %rd1, 0d3FF0000000000001;\ncvt.rp.f32.f64 %f10, %rd1"), 0x3f800001},
      {bits("mov.f64 %rd1, 0d7FEFFFFFFFFFFFFF;\ncvt.rz.f32.f64 %f10, %rd1"), 0x7f7fffff},
      {bits("mov.f64 %rd1, 0d7FF8000000000000;\ncvt.rz.f32.f64 %f10, %rd1"), kNan},
      {upper("mov.u64 %rd1, 0x0020000000000001;\ncvt.rp.f64.u64 %rd10, %rd1;\nshl.b64 %rd10, %rd10, 32"), 1},
      {"mov.b32 %f1, 0x3F801000;\ncvt.rna.tf32.f32 %r10, %f1", 0x3f802000},
      {"mov.b32 %f1, 0x3F800FFF;\ncvt.rna.tf32.f32 %r10, %f1", 0x3f800000},
      {"mov.b32 %f1, 0x3F801000;\ncvt.rn.tf32.f32 %r10, %f1", 0x3f800000},
      {"mov.f32 %f1, " + number(1.0f / 3) + ";\nmov.f32 %f2, " + number(-1.0f / 3) +
           ";\ncvt.rz.f16x2.f32 %r10, %f1, %f2",
       0x3555b555},
      {"mov.f32 %f1, " + number(1.0f / 3) + ";\nmov.f32 %f2, " + number(-1.0f / 3) +
           ";\ncvt.rn.relu.bf16x2.f32 %r10, %f1, %f2",
       0x3eab0000},
  });
}

TEST_CASE("emulator: conversions that flush take small numbers of fp32 for zeros") {
  check_values({
      {"mov.b32 %f1, 0x80000001;\ncvt.rmi.ftz.s32.f32 %r10, %f1", 0},
      {"mov.b32 %f1, 0x80000001;\ncvt.rmi.s32.f32 %r10, %f1", 0xffffffff},
      {"mov.f32 %f1, " + number(2.5f) + ";\ncvt.rni.ftz.s32.f32 %r10, %f1", 2},
      {bits("mov.f64 %rd1, 0d3700000000000000;\ncvt.rn.ftz.f32.f64 %f10, %rd1"), 0},
      {bits("mov.b32 %f1, 0x80000001;\ncvt.rpi.ftz.f32.f32 %f10, %f1"), 0x80000000},
      {bits("mov.b32 %f1, 0x00000001;\ncvt.ftz.sat.f32.f32 %f10, %f1"), 0},
      {bits("mov.f32 %f1, " + number(2) + ";\ncvt.ftz.sat.f32.f32 %f10, %f1"), bits_of(1)},
  });
}

TEST_CASE("emulator: directed conversions agree with the host's rounding modes") {
  std::mt19937_64 random(7);
  struct Mode {
    const char* name;
    int host;
  };
  constexpr std::array<Mode, 3> kModes{{{"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}, {"rz", FE_TOWARDZERO}}};
  for (int i = 0; i < 60; ++i) {
    const Mode& mode = kModes[static_cast<std::size_t>(i) % kModes.size()];
    volatile double value = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 280) - 220);
    if (i % 2 == 1) value = -value;
    std::fesetround(mode.host);
    const volatile float expected = static_cast<float>(value);
    std::fesetround(FE_TONEAREST);
    char text[24];
    std::snprintf(text, sizeof text, "0d%016lX", std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    check_values({{bits(std::string("mov.f64 %rd1, ") + text + ";\ncvt." + mode.name + ".f32.f64 %f10, %rd1"),
                   bits_of(expected)}});
  }
}

}  // namespace tilescope::gpu::emulator::rounded_conversion_test
