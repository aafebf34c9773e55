// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg.
#include <type_traits>

#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
/// Twice as wide, and at least 64 bits.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, Int128, Uint128>,
                                std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

// Arithmetic wraps, and narrow types are computed in int: hence the unsigned types and the casts.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
};
struct MultiplyLow {
  auto operator()(auto a, auto b) const { return std::uint64_t(a) * std::uint64_t(b); }
};
struct MultiplyHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
template <class R>
struct MultiplyWide {
  template <class T>
  R operator()(T a, T b) const {
    return static_cast<R>(static_cast<R>(a) * static_cast<R>(b));
  }
};
template <class Multiply>
struct MultiplyAdd {
  template <class T, class R>
  R operator()(T a, T b, R c) const {
    return Add{}(static_cast<R>(Multiply{}(a, b)), c);
  }
};
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);  // PTX leaves the value open
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Minimum {
  auto operator()(auto a, auto b) const { return a < b ? a : b; }
};
struct Maximum {
  auto operator()(auto a, auto b) const { return a < b ? b : a; }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
  }
};
struct Absolute {
  auto operator()(auto a) const { return a < 0 ? Negate{}(a) : a; }
};

/// Both halves of a word, each for itself.
template <class Op, class T>
struct InPairs {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const auto low = Op{}(static_cast<T>(a), static_cast<T>(b));
    const auto high = Op{}(static_cast<T>(a >> 16), static_cast<T>(b >> 16));
    return std::uint32_t{static_cast<std::uint16_t>(high)} << 16 | static_cast<std::uint16_t>(low);
  }
};
template <class Op>
Execution binary_of_pairs(const ptx::Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 3);
  return {only_type(instruction) == ptx::Type::s16x2 ? &binary<InPairs<Op, std::int16_t>, std::uint32_t>
                                                     : &binary<InPairs<Op, std::uint16_t>, std::uint32_t>};
}

template <class Op>
Execution binary_of(const ptx::Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 3);
  return of_integer<Op, 2>(only_type(instruction));
}
template <class Op>
Execution unary_of(const ptx::Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 2);
  return of_integer<Op, 1>(only_type(instruction));
}

/// mul and mad: .lo, .hi, and .wide, whose result is twice as wide.
template <class T, class R>
struct WideHandlers {
  static constexpr Handler multiply = &binary<MultiplyWide<R>, T, R>;
  static constexpr Handler multiply_add = &ternary<MultiplyAdd<MultiplyWide<R>>, T, R>;
};
template <class Handlers>
Handler pick_wide(bool add) {
  return add ? Handlers::multiply_add : Handlers::multiply;
}
Execution select_wide(const ptx::Instruction& instruction, bool add) {
  switch (only_type(instruction)) {
    case ptx::Type::u16:
      return {pick_wide<WideHandlers<std::uint16_t, std::uint32_t>>(add)};
    case ptx::Type::s16:
      return {pick_wide<WideHandlers<std::int16_t, std::int32_t>>(add)};
    case ptx::Type::u32:
      return {pick_wide<WideHandlers<std::uint32_t, std::uint64_t>>(add)};
    case ptx::Type::s32:
      return {pick_wide<WideHandlers<std::int32_t, std::int64_t>>(add)};
    default:
      unknown_form();
  }
}

}  // namespace

Execution select_integer_multiply(const ptx::Instruction& instruction) {
  plain_operands(instruction, 3);
  only_modifiers(instruction, {"lo", "hi", "wide"});
  if (instruction.has("wide")) return select_wide(instruction, false);
  if (!instruction.has("hi") && !instruction.has("lo")) unknown_form();
  if (instruction.has("hi")) return of_integer<MultiplyHigh, 2>(only_type(instruction));
  return of_integer<MultiplyLow, 2>(only_type(instruction));
}

Execution select_multiply_add(const ptx::Instruction& instruction) {
  plain_operands(instruction, 4);
  only_modifiers(instruction, {"lo", "hi", "wide"});
  if (instruction.has("wide")) return select_wide(instruction, true);
  if (instruction.has("hi")) return of_integer<MultiplyAdd<MultiplyHigh>, 3>(only_type(instruction));
  return of_integer<MultiplyAdd<MultiplyLow>, 3>(only_type(instruction));
}

Execution select_integer(Arithmetic operation, const ptx::Instruction& instruction) {
  const ptx::Type type = instruction.types.back();
  if (type == ptx::Type::u16x2 || type == ptx::Type::s16x2) {
    if (operation == Arithmetic::add) return binary_of_pairs<Add>(instruction);
    if (operation == Arithmetic::minimum) return binary_of_pairs<Minimum>(instruction);
    if (operation == Arithmetic::maximum) return binary_of_pairs<Maximum>(instruction);
    unknown_form();
  }
  switch (operation) {
    case Arithmetic::add:
      return binary_of<Add>(instruction);
    case Arithmetic::subtract:
      return binary_of<Subtract>(instruction);
    case Arithmetic::multiply:
      return select_integer_multiply(instruction);
    case Arithmetic::divide:
      return binary_of<Divide>(instruction);
    case Arithmetic::minimum:
      return binary_of<Minimum>(instruction);
    case Arithmetic::maximum:
      return binary_of<Maximum>(instruction);
    case Arithmetic::absolute:
      return unary_of<Absolute>(instruction);
    case Arithmetic::negate:
      return unary_of<Negate>(instruction);
  }
  unknown_form();
}

void add_integer_handlers(HandlerTable& table) {
  table.add("mad", select_multiply_add);
  table.add("rem", binary_of<Remainder>);
}

}  // namespace tilescope::gpu::emulator
