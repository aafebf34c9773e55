// SPDX-License-Identifier: Apache-2.0
// Tables of instructions and what they give.
#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::testing {

/// Instructions that leave a number in %r10, and that number.
struct Value {
  std::string ptx;
  std::uint32_t expected;
};

/// Runs all in one warp whose lanes are all active, and in one with a lane missing: two ways through the
/// code.
inline void check_values(const std::vector<Value>& values) {
  std::string body;
  for (std::size_t i = 0; i < values.size(); ++i)
    body += values[i].ptx + ";\nst.global.u32 [%rd0+" + std::to_string(4 * i) + "], %r10;\n";
  for (const unsigned threads : {32u, 31u}) {
    PtxRun run;
    run.threads = threads;
    run(body);
    for (std::size_t i = 0; i < values.size(); ++i) {
      CAPTURE(values[i].ptx);
      CAPTURE(threads);
      CHECK(run.out[i] == values[i].expected);
    }
  }
}

/// The upper word of what is left in %rd10.
inline std::string upper(const std::string& ptx) { return ptx + ";\nmov.b64 {%r11, %r10}, %rd10"; }
inline std::string lower(const std::string& ptx) { return ptx + ";\ncvt.u32.u64 %r10, %rd10"; }
/// What is left in %f10, as bits; and a number as PTX writes it.
inline std::string bits(const std::string& ptx) { return ptx + ";\nmov.b32 %r10, %f10"; }
inline std::string predicate(const std::string& ptx) { return ptx + ";\nselp.u32 %r10, 1, 0, %p1"; }
inline std::string number(float value) {
  char text[16];
  std::snprintf(text, sizeof text, "0f%08X", std::bit_cast<std::uint32_t>(value));
  return text;
}
inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr std::uint32_t kNan = 0x7fffffff;

}  // namespace tilescope::gpu::emulator::testing
