// SPDX-License-Identifier: Apache-2.0
// The choice of a handler by the type that an opcode names.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "emulator/machine/lanes.hpp"

namespace tilescope::gpu::emulator {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

/// make(T{}) of the integers T that a type has; b types count as unsigned.
template <class Make>
auto with_integer(ptx::Type type, Make&& make) {
  switch (type) {
    case ptx::Type::b16:
    case ptx::Type::u16:
      return make(std::uint16_t{});
    case ptx::Type::s16:
      return make(std::int16_t{});
    case ptx::Type::b32:
    case ptx::Type::u32:
      return make(std::uint32_t{});
    case ptx::Type::s32:
      return make(std::int32_t{});
    case ptx::Type::b64:
    case ptx::Type::u64:
      return make(std::uint64_t{});
    case ptx::Type::s64:
      return make(std::int64_t{});
    default:
      unknown_form();
  }
}

/// The handler of an operation on so many operands of an integer type.
template <class Op, std::size_t operands>
Execution of_integer(ptx::Type type) {
  return with_integer(type, [](auto as) -> Execution {
    if constexpr (operands == 1) return {&unary<Op, decltype(as)>};
    if constexpr (operands == 2) return {&binary<Op, decltype(as)>};
    if constexpr (operands == 3) return {&ternary<Op, decltype(as)>};
  });
}

constexpr bool is_half(ptx::Type type) {
  return type == ptx::Type::f16 || type == ptx::Type::bf16 || type == ptx::Type::f16x2 ||
         type == ptx::Type::bf16x2;
}
constexpr bool is_float(ptx::Type type) { return type == ptx::Type::f32 || type == ptx::Type::f64; }

/// min and max of floating-point numbers: of a number and a NaN, the number, or the NaN (.NaN); -0 is less
/// than 0.
template <bool greatest, bool keeps_nan = false>
struct Extreme {
  template <class T>
  T operator()(T a, T b) const {
    if (keeps_nan && (a != a || b != b)) return std::numeric_limits<T>::quiet_NaN();
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) == greatest ? b : a;
    return (a < b) == greatest ? b : a;
  }
};

/// Opcodes that integers and floating-point numbers share.
enum class Arithmetic { add, subtract, multiply, divide, minimum, maximum, absolute, negate };
Execution select_integer(Arithmetic operation, const ptx::Instruction& instruction);
Execution select_half(Arithmetic operation, const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
