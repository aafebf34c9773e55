// SPDX-License-Identifier: Apache-2.0
// The choice of a handler by the type that an opcode names.
#pragma once

#include <cstdint>

#include "emulator/machine/lanes.hpp"

namespace tilescope::gpu::emulator {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

/// Handlers of an operation, as templates over the type.
template <class Op>
struct HandlerOf {
  template <class T>
  struct Unary {
    static constexpr Handler value = &unary<Op, T>;
  };
  template <class T>
  struct Binary {
    static constexpr Handler value = &binary<Op, T>;
  };
  template <class T>
  struct Ternary {
    static constexpr Handler value = &ternary<Op, T>;
  };
};

/// Make<T>::value for the integer type; b types count as unsigned.
template <template <class> class Make>
Handler of_integer(ptx::Type type) {
  switch (type) {
    case ptx::Type::b16:
    case ptx::Type::u16:
      return Make<std::uint16_t>::value;
    case ptx::Type::s16:
      return Make<std::int16_t>::value;
    case ptx::Type::b32:
    case ptx::Type::u32:
      return Make<std::uint32_t>::value;
    case ptx::Type::s32:
      return Make<std::int32_t>::value;
    case ptx::Type::b64:
    case ptx::Type::u64:
      return Make<std::uint64_t>::value;
    case ptx::Type::s64:
      return Make<std::int64_t>::value;
    default:
      unknown_form();
  }
}

constexpr bool is_half(ptx::Type type) {
  return type == ptx::Type::f16 || type == ptx::Type::bf16 || type == ptx::Type::f16x2 ||
         type == ptx::Type::bf16x2;
}
constexpr bool is_float(ptx::Type type) { return type == ptx::Type::f32 || type == ptx::Type::f64; }

/// Opcodes that integers and floating-point numbers share.
enum class Arithmetic { add, subtract, multiply, divide, minimum, maximum, absolute, negate };
Execution select_integer(Arithmetic operation, const ptx::Instruction& instruction);
Execution select_half(Arithmetic operation, const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
