// SPDX-License-Identifier: Apache-2.0
// Bits: and, or, xor, not, shl, shr, shf, lop3, prmt, bfe, bfi,
// bfind, bmsk, szext, brev, popc, clz.
#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>

#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;

using And = std::bit_and<>;
using Or = std::bit_or<>;
using Xor = std::bit_xor<>;
using Not = std::bit_not<>;
/// Shifts by the width or more give 0, or all sign.
struct ShiftLeft {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(std::make_unsigned_t<T>(a) << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    if (by >= 8 * sizeof(T)) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};
struct CountOnes {
  std::uint32_t operator()(auto a) const { return static_cast<std::uint32_t>(std::popcount(a)); }
};
struct CountLeadingZeros {
  std::uint32_t operator()(auto a) const { return static_cast<std::uint32_t>(std::countl_zero(a)); }
};
struct ReverseBits {
  template <class T>
  T operator()(T a) const {
    T reversed = 0;
    for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit)
      reversed |= (a >> bit & 1) << (8 * sizeof(T) - 1 - bit);
    return reversed;
  }
};

/// Predicates are masks of lanes.
template <class Op>
Outcome of_predicates(Warp& warp, const Instruction& instruction) {
  warp.set_predicate(instruction.operands[0],
                     Op{}(warp.predicate(instruction.operands[1]), warp.predicate(instruction.operands[2])));
  return Outcome::next;
}
Outcome not_of_predicate(Warp& warp, const Instruction& instruction) {
  warp.set_predicate(instruction.operands[0], ~warp.predicate(instruction.operands[1]));
  return Outcome::next;
}

template <class Op>
Execution select_logic(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 3);
  if (only_type(instruction) == ptx::Type::pred) return {&of_predicates<Op>};
  return of_integer<Op, 2>(only_type(instruction));
}
Execution select_not(const Instruction& instruction) {
  plain_operands(instruction, 2);
  if (only_type(instruction) == ptx::Type::pred) return {&not_of_predicate};
  return of_integer<Not, 1>(only_type(instruction));
}

template <class Op>
Execution select_shift(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 3);
  return with_integer(only_type(instruction), [](auto as) -> Execution {
    using T = decltype(as);
    return {&binary<Op, T, T, std::uint32_t>};
  });
}

template <class Op>
Execution select_count(const Instruction& instruction) {
  switch (only_type(instruction)) {
    case ptx::Type::b32:
      return {&unary<Op, std::uint32_t, std::uint32_t>};
    case ptx::Type::b64:
      return {&unary<Op, std::uint64_t, std::uint32_t>};
    default:
      unknown_form();
  }
}
Execution select_reverse(const Instruction& instruction) {
  return {only_type(instruction) == ptx::Type::b32 ? &unary<ReverseBits, std::uint32_t>
                                                   : &unary<ReverseBits, std::uint64_t>};
}

/// Funnel shift of (high, low): .l keeps the upper word, .r the lower; .clamp stops at 32, .wrap takes the
/// amount mod 32.
template <bool left, bool clamp>
struct FunnelShift {
  std::uint32_t operator()(std::uint32_t low, std::uint32_t high, std::uint32_t by) const {
    const std::uint32_t amount = clamp ? std::min(by, 32u) : by % 32;
    const std::uint64_t both = std::uint64_t{high} << 32 | low;
    return static_cast<std::uint32_t>(left ? both << amount >> 32 : both >> amount);
  }
};
Execution select_funnel_shift(const Instruction& instruction) {
  plain_operands(instruction, 4);
  only_modifiers(instruction, {"l", "r", "clamp", "wrap"});
  const bool clamp = instruction.has("clamp");
  if (instruction.has("l"))
    return {clamp ? &ternary<FunnelShift<true, true>, std::uint32_t>
                  : &ternary<FunnelShift<true, false>, std::uint32_t>};
  return {clamp ? &ternary<FunnelShift<false, true>, std::uint32_t>
                : &ternary<FunnelShift<false, false>, std::uint32_t>};
}

Outcome any_logic(Warp& warp, const Instruction& instruction) {
  const auto table = static_cast<std::uint32_t>(instruction.operands[4].value);
  const auto* const a = warp.read<std::uint32_t>(instruction.operands[1]);
  const auto* const b = warp.read<std::uint32_t>(instruction.operands[2]);
  const auto* const c = warp.read<std::uint32_t>(instruction.operands[3]);
  auto* const result = warp.write<std::uint32_t>(instruction.operands[0]);
  each_lane(warp, [=](int lane) {
    std::uint32_t bits = 0;
    for (std::uint32_t row = 0; row < 8; ++row) {
      const std::uint32_t hit =
          (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
      bits |= table >> row & 1 ? hit : 0;
    }
    result[lane] = bits;
  });
  return Outcome::next;
}
Execution select_any_logic(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 5);
  return {&any_logic};
}

/// Bytes of (b, a), chosen by the four nibbles of c; the top bit of a nibble spreads the byte's sign.
struct PermuteBytes {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t selector) const {
    const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t nibble = selector >> (4 * i) & 15;
      auto byte = static_cast<std::uint32_t>(bytes >> (8 * (nibble & 7)) & 0xff);
      if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};
Execution select_permute(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 4);
  return {&ternary<PermuteBytes, std::uint32_t>};
}

/// A field's position and length are taken from the low bytes of their operands.
template <class T>
Outcome insert_field(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  const auto* const position = warp.read<std::uint32_t>(instruction.operands[3]);
  const auto* const length = warp.read<std::uint32_t>(instruction.operands[4]);
  T* const result = warp.write<T>(instruction.operands[0]);
  each_lane(warp, [=](int lane) {
    const ShiftLeft shift;
    const std::uint32_t begin = position[lane] & 0xff;
    const T mask = shift(static_cast<T>(~shift(static_cast<T>(~T{0}), length[lane] & 0xff)), begin);
    result[lane] = (shift(a[lane], begin) & mask) | (b[lane] & ~mask);
  });
  return Outcome::next;
}
Execution select_insert(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 5);
  return {only_type(instruction) == ptx::Type::b32 ? &insert_field<std::uint32_t>
                                                   : &insert_field<std::uint64_t>};
}

struct ExtractField {
  template <class T>
  T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    constexpr std::uint32_t width = 8 * sizeof(T);
    const std::uint32_t begin = position & 0xff, bits = length & 0xff;
    if (bits == 0) return 0;
    if (std::is_signed_v<T>) {
      const std::uint32_t top = std::min(begin + bits - 1, width - 1);
      return ShiftRight{}(static_cast<T>(ShiftLeft{}(a, width - 1 - top)), begin + width - 1 - top);
    }
    const T field = ShiftRight{}(a, begin);
    return bits >= width ? field : static_cast<T>(field & ((T{1} << bits) - 1));
  }
};
template <class T>
Outcome extract_field(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const auto* const position = warp.read<std::uint32_t>(instruction.operands[2]);
  const auto* const length = warp.read<std::uint32_t>(instruction.operands[3]);
  T* const result = warp.write<T>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = ExtractField{}(a[lane], position[lane], length[lane]); });
  return Outcome::next;
}
Execution select_extract(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 4);
  return with_integer(only_type(instruction),
                      [](auto as) -> Execution { return {&extract_field<decltype(as)>}; });
}

/// bfind: the place of the highest bit that differs from the sign, or all ones; .shiftamt counts from the
/// top.
template <bool from_top>
struct FindHighest {
  template <class T>
  std::uint32_t operator()(T a) const {
    using Bits = std::make_unsigned_t<T>;
    const auto bits = static_cast<Bits>(std::is_signed_v<T> && a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    const auto leading = static_cast<std::uint32_t>(std::countl_zero(bits));
    return from_top ? leading : 8 * sizeof(T) - 1 - leading;
  }
};
Execution select_find(const Instruction& instruction) {
  only_modifiers(instruction, {"shiftamt"});
  plain_operands(instruction, 2);
  if (ptx::bytes_of(only_type(instruction)) < 4) unknown_form();
  return with_integer(only_type(instruction), [&](auto as) -> Execution {
    using T = decltype(as);
    return {instruction.has("shiftamt") ? &unary<FindHighest<true>, T, std::uint32_t>
                                        : &unary<FindHighest<false>, T, std::uint32_t>};
  });
}

/// bmsk: so many ones from a place on; .clamp stops at 32, .wrap takes both mod 32.
template <bool wraps>
struct MakeMask {
  std::uint32_t operator()(std::uint32_t begin, std::uint32_t count) const {
    if (wraps) begin %= 32, count %= 32;
    return ShiftLeft{}(static_cast<std::uint32_t>(~ShiftLeft{}(~0u, count)), begin);
  }
};
Execution select_mask(const Instruction& instruction) {
  only_modifiers(instruction, {"clamp", "wrap"});
  plain_operands(instruction, 3);
  if (only_type(instruction) != ptx::Type::b32) unknown_form();
  return {instruction.has("wrap") ? &binary<MakeMask<true>, std::uint32_t>
                                  : &binary<MakeMask<false>, std::uint32_t>};
}

/// szext: the low bits, extended by their sign or with zeros.
template <bool wraps>
struct ExtendField {
  template <class T>
  T operator()(T a, std::uint32_t bits) const {
    if (wraps) bits %= 32;
    return bits >= 32 ? a : ExtractField{}(a, 0, bits);
  }
};
Execution select_extension(const Instruction& instruction) {
  only_modifiers(instruction, {"clamp", "wrap"});
  plain_operands(instruction, 3);
  const bool wraps = instruction.has("wrap");
  if (only_type(instruction) == ptx::Type::s32)
    return {wraps ? &binary<ExtendField<true>, std::int32_t, std::int32_t, std::uint32_t>
                  : &binary<ExtendField<false>, std::int32_t, std::int32_t, std::uint32_t>};
  if (only_type(instruction) != ptx::Type::u32) unknown_form();
  return {wraps ? &binary<ExtendField<true>, std::uint32_t> : &binary<ExtendField<false>, std::uint32_t>};
}

}  // namespace

void add_bit_handlers(HandlerTable& table) {
  table.add("and", select_logic<And>);
  table.add("or", select_logic<Or>);
  table.add("xor", select_logic<Xor>);
  table.add("not", select_not);
  table.add("shl", select_shift<ShiftLeft>);
  table.add("shr", select_shift<ShiftRight>);
  table.add("shf", select_funnel_shift);
  table.add("lop3", select_any_logic);
  table.add("prmt", select_permute);
  table.add("bfi", select_insert);
  table.add("bfe", select_extract);
  table.add("bfind", select_find);
  table.add("bmsk", select_mask);
  table.add("szext", select_extension);
  table.add("popc", select_count<CountOnes>, "rv");
  table.add("clz", select_count<CountLeadingZeros>, "rv");
  table.add("brev", select_reverse, "rv");
}

}  // namespace tilescope::gpu::emulator
