// SPDX-License-Identifier: Apache-2.0
// Integers with a carry (add.cc, addc, sub.cc, subc, mad.cc, madc), sums of products of bytes (dp4a, dp2a),
// and of absolute differences (sad).
#include <type_traits>

#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

/// result = a + b + carry, and the carry out of it where the instruction keeps that.
template <class T>
Outcome add_lanes(Warp& warp, const Instruction& instruction, const T* a, const T* b, bool inverts) {
  const bool takes = instruction.opcode[3] == 'c', keeps = instruction.has("cc");  // addc, subc, madc
  T* const result = warp.write<T>(instruction.operands[0]);
  for_lanes(warp.active, [&](int lane) {
    const LaneMask bit = 1u << lane;
    // a - b is a + ~b + 1; a borrow is no carry.
    const bool in = takes ? (warp.carry & bit) != 0 : inverts;
    const Uint128 sum = Uint128{a[lane]} + static_cast<T>(inverts ? ~b[lane] : b[lane]) + (in ? 1u : 0u);
    result[lane] = static_cast<T>(sum);
    if (keeps) warp.carry = (warp.carry & ~bit) | (sum >> (8 * sizeof(T)) != 0 ? bit : 0);
  });
  return Outcome::next;
}

template <class T, bool subtracts>
Outcome add(Warp& warp, const Instruction& instruction) {
  return add_lanes(warp, instruction, warp.read<T>(instruction.operands[1]),
                   warp.read<T>(instruction.operands[2]), subtracts);
}

/// T is signed where the high half is that of signed numbers.
template <class T>
Outcome multiply_add(Warp& warp, const Instruction& instruction) {
  using Bits = std::make_unsigned_t<T>;
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  Bits product[kLanes];
  const unsigned shift = instruction.has("hi") ? 8 * sizeof(T) : 0;
  for_lanes(warp.active, [&](int lane) {
    product[lane] = static_cast<Bits>((Int128{a[lane]} * Int128{b[lane]}) >> shift);
    if (std::is_same_v<T, std::uint64_t>)
      product[lane] = static_cast<Bits>((Uint128{Bits(a[lane])} * Uint128{Bits(b[lane])}) >> shift);
  });
  return add_lanes(warp, instruction, product, warp.read<Bits>(instruction.operands[3]), false);
}

template <bool subtracts>
Execution select_add(const Instruction& instruction) {
  only_modifiers(instruction, {"cc"});
  plain_operands(instruction, 3);
  switch (ptx::bytes_of(only_type(instruction))) {
    case 4:
      return {&add<std::uint32_t, subtracts>};
    case 8:
      return {&add<std::uint64_t, subtracts>};
    default:
      unknown_form();
  }
}
Execution select_multiply_add(const Instruction& instruction) {
  only_modifiers(instruction, {"cc", "lo", "hi"});
  plain_operands(instruction, 4);
  switch (only_type(instruction)) {
    case Type::u32:
      return {&multiply_add<std::uint32_t>};
    case Type::s32:
      return {&multiply_add<std::int32_t>};
    case Type::u64:
      return {&multiply_add<std::uint64_t>};
    case Type::s64:
      return {&multiply_add<std::int64_t>};
    default:
      unknown_form();
  }
}

/// dp4a: four bytes of each; dp2a: two halves of a, and two bytes of b, its lower or upper ones.
template <class A, class B, int terms, int first>
struct DotProduct {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t sum) const {
    for (int i = 0; i < terms; ++i) {
      const auto left = static_cast<A>(a >> (8 * sizeof(A) * static_cast<unsigned>(i)));
      const auto right = static_cast<B>(b >> (8 * (first + i)));
      sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(left) * static_cast<std::int32_t>(right));
    }
    return sum;
  }
};
template <class A, class B, int terms, int first>
constexpr Handler kDot = &ternary<DotProduct<A, B, terms, first>, std::uint32_t>;

Execution select_dot(const Instruction& instruction) {
  plain_operands(instruction, 4);
  only_modifiers(instruction, {"lo", "hi"});
  if (instruction.types.size() != 2) unknown_form();
  const bool a = instruction.types[0] == Type::s32, b = instruction.types[1] == Type::s32;
  using S8 = std::int8_t;
  using U8 = std::uint8_t;
  using S16 = std::int16_t;
  using U16 = std::uint16_t;
  if (instruction.opcode.starts_with("dp4a"))
    return {a ? b ? kDot<S8, S8, 4, 0> : kDot<S8, U8, 4, 0> : b ? kDot<U8, S8, 4, 0> : kDot<U8, U8, 4, 0>};
  if (instruction.has("hi"))
    return {a   ? b ? kDot<S16, S8, 2, 2> : kDot<S16, U8, 2, 2>
              : b ? kDot<U16, S8, 2, 2>
                : kDot<U16, U8, 2, 2>};
  return {a ? b ? kDot<S16, S8, 2, 0> : kDot<S16, U8, 2, 0> : b ? kDot<U16, S8, 2, 0> : kDot<U16, U8, 2, 0>};
}

/// sad d, a, b, c: c + |a - b|
struct AddDistance {
  template <class T>
  T operator()(T a, T b, T c) const {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(Bits(c) + (a < b ? Bits(b) - Bits(a) : Bits(a) - Bits(b)));
  }
};
Execution select_distance(const Instruction& instruction) {
  plain_operands(instruction, 4);
  only_modifiers(instruction, {});
  return of_integer<AddDistance, 3>(only_type(instruction));
}

}  // namespace

void add_carry_handlers(HandlerTable& table) {
  table.add("add.cc", select_add<false>);
  table.add("addc", select_add<false>);
  table.add("sub.cc", select_add<true>);
  table.add("subc", select_add<true>);
  for (const char* words : {"mad.lo.cc", "mad.hi.cc", "madc"}) table.add(words, select_multiply_add);
  table.add("dp4a", select_dot);
  table.add("dp2a", select_dot);
  table.add("sad", select_distance);
}

}  // namespace tilescope::gpu::emulator
