// SPDX-License-Identifier: Apache-2.0
// Conversions to floating-point types that need a rounding other than the host's: directed ones, and those to
// halves from whole numbers and fp64, which would round twice.
#pragma once

#include <cmath>

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

enum class Rounding { none, nearest_even, nearest_away, zero, minus, plus };

/// A whole number, unless nothing is rounded.
template <class T>
T round_to_integer(T value, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return std::nearbyint(value);
    case Rounding::nearest_away:
      return std::round(value);
    case Rounding::zero:
      return std::trunc(value);
    case Rounding::minus:
      return std::floor(value);
    case Rounding::plus:
      return std::ceil(value);
    case Rounding::none:
      break;
  }
  return value;
}

/// Whether a cvt is one of these.
bool needs_own_rounding(const ptx::Instruction& instruction);
/// Its handler, of one number or of a pair of fp32 numbers. @throws std::runtime_error for an unknown form
Handler select_own_rounding(const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
