// SPDX-License-Identifier: Apache-2.0
// Every number of a source type is one of long double; it is rounded there, once, to what the result's type
// holds.
#include "emulator/machine/instructions/rounded_conversion.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

static_assert(std::numeric_limits<long double>::digits >= 64);

/// Numbers of so many significant bits, the least and the greatest of which have these exponents.
struct FloatFormat {
  int precision, least_exponent, most_exponent;
};

FloatFormat format_of(Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return {11, -24, 15};
    case Type::bf16:
    case Type::bf16x2:
      return {8, -133, 127};
    case Type::tf32:
      return {11, -136, 127};
    case Type::f32:
      return {24, -149, 127};
    case Type::f64:
      return {53, -1074, 1023};
    default:
      unknown_form();
  }
}

Rounding rounding_of(const Instruction& instruction) {
  if (instruction.has("rz")) return Rounding::zero;
  if (instruction.has("rm")) return Rounding::minus;
  if (instruction.has("rp")) return Rounding::plus;
  return instruction.has("rna") ? Rounding::nearest_away : Rounding::nearest_even;
}

long double rounded(long double value, const FloatFormat& format, Rounding rounding) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - format.precision, format.least_exponent);
  const long double result = std::ldexp(round_to_integer(std::ldexp(value, -unit), rounding), unit);
  const long double most = std::ldexp(2 - std::ldexp(1.0L, 1 - format.precision), format.most_exponent);
  if (std::fabs(result) <= most) return std::copysign(result, value);
  const bool to_most =
      rounding == Rounding::zero || rounding == (value > 0 ? Rounding::minus : Rounding::plus);
  return std::copysign(to_most ? most : std::numeric_limits<long double>::infinity(), value);
}

long double number_of(std::uint64_t bits, Type type) {
  return with_number(type, [bits](auto as) -> long double {
    return widened(std::bit_cast<decltype(as)>(static_cast<Bits<sizeof(as)>>(bits)));
  });
}

/// Of a number that the type holds.
std::uint64_t bits_in(long double value, Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return fp32_to_fp16(static_cast<float>(value));
    case Type::bf16:
    case Type::bf16x2:
      return fp32_to_bf16(static_cast<float>(value));
    case Type::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    default:
      return std::isnan(value) ? 0x7fffffffu : std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
}

/// One source operand as the result's type has it.
std::uint64_t converted_bits(const Warp& warp, const Instruction& instruction, std::size_t operand,
                             int lane) {
  const auto flushed = [&](long double value, Type type) {
    const bool is_small = std::fabs(value) < std::numeric_limits<float>::min();
    return type == Type::f32 && is_small && instruction.has("ftz") ? std::copysign(0.0L, value) : value;
  };
  const Type to = instruction.types[0], from = instruction.types[1];
  long double value = flushed(number_of(warp.value(instruction.operands[operand], lane), from), from);
  if (instruction.has("relu") && value < 0) value = 0;
  return bits_in(flushed(rounded(value, format_of(to), rounding_of(instruction)), to), to);
}

Outcome convert_one(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    warp.set_value(instruction.operands[0], lane, converted_bits(warp, instruction, 1, lane));
  });
  return Outcome::next;
}
Outcome convert_pair(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    warp.set_value(
        instruction.operands[0], lane,
        converted_bits(warp, instruction, 1, lane) << 16 | converted_bits(warp, instruction, 2, lane));
  });
  return Outcome::next;
}

bool is_integer(Type type) {
  return type == Type::s8 || type == Type::u8 || type == Type::s16 || type == Type::u16 ||
         type == Type::s32 || type == Type::u32 || type == Type::s64 || type == Type::u64;
}

}  // namespace

bool needs_own_rounding(const Instruction& instruction) {
  if (instruction.types.size() != 2) return false;
  const Type to = instruction.types[0], from = instruction.types[1];
  if (instruction.has_any({"rz", "rm", "rp", "rna", "relu"}) || to == Type::tf32) return true;
  return (to == Type::f16 || to == Type::bf16) && (is_integer(from) || from == Type::f64);
}

Handler select_own_rounding(const Instruction& instruction) {
  only_modifiers(instruction, {"rn", "rz", "rm", "rp", "rna", "relu", "ftz"});
  const Type to = instruction.types[0], from = instruction.types[1];
  format_of(to);
  const bool is_pair = to == Type::f16x2 || to == Type::bf16x2;
  plain_operands(instruction, is_pair ? 3 : 2);
  if (is_pair && from != Type::f32) unknown_form();
  number_of(0, from);
  return is_pair ? &convert_pair : &convert_one;
}

}  // namespace tilescope::gpu::emulator
