// SPDX-License-Identifier: Apache-2.0
// Rounding to odd: what is cut off leaves its mark in the last bit, so that a later rounding to fewer bits
// gives what one rounding of the exact value gives (Boldo and Melquiond, 2008).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tilescope::gpu::emulator {

/// Of a number that was rounded to the nearest, and the sign of what that rounding left out.
template <class Float, class Bits>
Float marked(Float nearest, Float left_out) {
  if (left_out == 0 || !std::isfinite(nearest)) return nearest;
  const auto bits = std::bit_cast<Bits>(nearest);
  if (bits & 1) return nearest;
  const bool away = (left_out > 0) != std::signbit(nearest);
  return std::bit_cast<Float>(away ? bits + 1 : bits - 1);
}

/// a + b in fp64, rounded to odd. What rounding to the nearest leaves out is exact (Knuth's two-sum).
inline double sum_to_odd(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  if (sum == 0) return sum;
  return marked<double, std::uint64_t>(sum, (a - (sum - of_b)) + (b - of_b));
}

/// fp32, rounded to odd.
inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isinf(nearest) && std::isfinite(value)) return nearest;
  const double left_out = value - static_cast<double>(nearest);
  if (nearest == 0 && left_out != 0) return std::copysign(1e-45f, nearest);
  return marked<float, std::uint32_t>(nearest, left_out > 0 ? 1.0f : left_out < 0 ? -1.0f : 0.0f);
}

}  // namespace tilescope::gpu::emulator
