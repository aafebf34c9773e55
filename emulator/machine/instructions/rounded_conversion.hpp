// SPDX-License-Identifier: Apache-2.0
// Conversions to floating-point types that need a rounding other than the host's: directed ones, and those to
// halves from whole numbers and fp64, which would round twice.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {

enum class Rounding { none, nearest_even, nearest_away, zero, minus, plus };

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};
inline float widened(Half value) { return fp16_to_fp32(value.bits); }
inline float widened(Bfloat value) { return bf16_to_fp32(value.bits); }
template <class T>
T widened(T value) {
  return value;
}

template <std::size_t bytes>
using Bits =
    std::conditional_t<bytes == 1, std::uint8_t,
                       std::conditional_t<bytes == 2, std::uint16_t,
                                          std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>>;

/// make(T{}) of the number T that a type has.
template <class Make>
auto with_number(ptx::Type type, Make&& make) {
  switch (type) {
    case ptx::Type::u8:
      return make(std::uint8_t{});
    case ptx::Type::s8:
      return make(std::int8_t{});
    case ptx::Type::f16:
      return make(Half{});
    case ptx::Type::bf16:
      return make(Bfloat{});
    case ptx::Type::f32:
      return make(float{});
    case ptx::Type::f64:
      return make(double{});
    case ptx::Type::b16:
    case ptx::Type::b32:
    case ptx::Type::b64:
      unknown_form();
    default:
      return with_integer(type, make);
  }
}

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
