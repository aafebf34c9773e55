// SPDX-License-Identifier: Apache-2.0
// setp, set, selp and slct.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>

#include "emulator/machine/instructions/half.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

// The ordered relations; a comparison with a NaN is false.
using Equal = std::equal_to<>;
struct NotEqual {
  bool operator()(auto a, auto b) const { return a < b || a > b; }
};
using Less = std::less<>;
using LessEqual = std::less_equal<>;
using Greater = std::greater<>;
using GreaterEqual = std::greater_equal<>;
struct Ordered {
  bool operator()(auto a, auto b) const { return a == a && b == b; }
};
/// neu, equ, ltu, leu, gtu, geu and nan hold where the opposite ordered relation does not.
bool is_unordered(const Instruction& instruction) {
  const std::string_view name = instruction.modifiers[0];
  return name.size() == 3 && name != "num";
}

/// Halves as registers hold them, compared as the numbers that they are.
template <Type type, int shift, class Raw>
struct Half {
  Raw bits;
  float value() const { return half_value(type, static_cast<std::uint16_t>(bits >> shift)); }
};
/// .ftz: subnormal numbers are zeros.
struct Flushed {
  float bits;
  float value() const { return std::fabs(bits) < std::numeric_limits<float>::min() ? 0.0f : bits; }
};

template <class Op, class T>
LaneMask compare(const Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  LaneMask mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if constexpr (std::is_class_v<T>) {
      mask |= static_cast<LaneMask>(Op{}(a[lane].value(), b[lane].value())) << lane;
    } else {
      mask |= static_cast<LaneMask>(Op{}(a[lane], b[lane])) << lane;
    }
  }
  return is_unordered(instruction) ? ~mask : mask;
}

/// The mask, and with a fourth operand what .and, .or or .xor make of the two.
LaneMask combined(const Warp& warp, const Instruction& instruction, LaneMask mask) {
  if (instruction.operands.size() < 4) return mask;
  const LaneMask other = warp.predicate(instruction.operands[3]);
  if (instruction.has("and")) return mask & other;
  return instruction.has("or") ? mask | other : mask ^ other;
}

/// setp.CMP{.BOOL} p|q, a, b, c: p = (a CMP b) BOOL c, q = !(a CMP b) BOOL c
template <class Op, class T>
Outcome set_predicates(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask found = compare<Op, T>(warp, instruction);
  const bool both = operands[0].kind == ptx::Operand::Kind::vector;
  warp.set_predicate(both ? operands[0].elements[0] : operands[0], combined(warp, instruction, found));
  if (both) warp.set_predicate(operands[0].elements[1], combined(warp, instruction, ~found));
  return Outcome::next;
}

/// Pairs: p is the lower halves' comparison and q the upper ones'.
template <class Op, Type type>
Outcome set_predicates_of_pairs(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask low = compare<Op, Half<type, 0, std::uint32_t>>(warp, instruction);
  const LaneMask high = compare<Op, Half<type, 16, std::uint32_t>>(warp, instruction);
  warp.set_predicate(operands[0].elements[0], low);
  warp.set_predicate(operands[0].elements[1], high);
  return Outcome::next;
}

/// set.CMP.DTYPE.STYPE d, a, b: all ones, or of floating-point types 1.0, where the comparison holds
template <class Op, class T>
Outcome set_number(Warp& warp, const Instruction& instruction) {
  const LaneMask found = compare<Op, T>(warp, instruction);
  const Type type = instruction.types[0];
  const std::uint64_t yes = type == Type::f32    ? 0x3f800000
                            : type == Type::f16  ? 0x3c00
                            : type == Type::bf16 ? 0x3f80
                                                 : ~0ull;
  for_lanes(warp.active,
            [&](int lane) { warp.set_value(instruction.operands[0], lane, found >> lane & 1 ? yes : 0); });
  return Outcome::next;
}
template <class Op, Type type>
Outcome set_pair(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask low = compare<Op, Half<type, 0, std::uint32_t>>(warp, instruction);
  const LaneMask high = compare<Op, Half<type, 16, std::uint32_t>>(warp, instruction);
  const std::uint64_t yes = instruction.types[0] == Type::f16x2    ? 0x3c00
                            : instruction.types[0] == Type::bf16x2 ? 0x3f80
                                                                   : 0xffff;
  for_lanes(warp.active, [&](int lane) {
    warp.set_value(operands[0], lane, (low >> lane & 1) * yes | ((high >> lane & 1) * yes) << 16);
  });
  return Outcome::next;
}

template <class T>
constexpr bool is_pair = false;
template <Type type>
constexpr bool is_pair<Half<type, 16, std::uint32_t>> = true;

template <class Op, Type type, int shift, class Raw>
Handler of_pair(const Instruction& instruction, Half<type, shift, Raw>) {
  if (instruction.opcode.starts_with("set.")) return &set_pair<Op, type>;
  if (instruction.operands[0].kind != ptx::Operand::Kind::vector || instruction.operands.size() != 3)
    unknown_form();
  return &set_predicates_of_pairs<Op, type>;
}

template <class Op, class T>
Handler handler_of(const Instruction& instruction) {
  if constexpr (is_pair<T>) return of_pair<Op>(instruction, T{});
  if (instruction.opcode.starts_with("set.")) return &set_number<Op, T>;
  return &set_predicates<Op, T>;
}

template <class T>
Handler of_relation(const Instruction& instruction) {
  const std::string_view name = instruction.modifiers[0];
  if (name == "eq" || name == "neu") return handler_of<Equal, T>(instruction);
  if (name == "lt" || name == "lo" || name == "geu") return handler_of<Less, T>(instruction);
  if (name == "le" || name == "ls" || name == "gtu") return handler_of<LessEqual, T>(instruction);
  if (name == "gt" || name == "hi" || name == "leu") return handler_of<Greater, T>(instruction);
  if (name == "ge" || name == "hs" || name == "ltu") return handler_of<GreaterEqual, T>(instruction);
  if (name == "num" || name == "nan") return handler_of<Ordered, T>(instruction);
  if (name == "ne" || name == "equ") return handler_of<NotEqual, T>(instruction);
  unknown_form();
}

Execution of_type(const Instruction& instruction, Type type) {
  switch (type) {
    case Type::f32:
      return {instruction.has("ftz") ? of_relation<Flushed>(instruction) : of_relation<float>(instruction)};
    case Type::f16:
      return {of_relation<Half<Type::f16, 0, std::uint16_t>>(instruction)};
    case Type::bf16:
      return {of_relation<Half<Type::bf16, 0, std::uint16_t>>(instruction)};
    case Type::f16x2:
      return {of_relation<Half<Type::f16, 16, std::uint32_t>>(instruction)};
    case Type::bf16x2:
      return {of_relation<Half<Type::bf16, 16, std::uint32_t>>(instruction)};
    case Type::f64:
      return {of_relation<double>(instruction)};
    default:
      return {with_integer(type, [&](auto as) { return of_relation<decltype(as)>(instruction); })};
  }
}

Execution select_comparison(const Instruction& instruction) {
  const bool combines = instruction.has("and") || instruction.has("or") || instruction.has("xor");
  operand_count(instruction, combines ? 4 : 3, combines ? 4 : 3);
  return of_type(instruction, only_type(instruction));
}
Execution select_set(const Instruction& instruction) {
  plain_operands(instruction, 3);
  if (instruction.types.size() != 2 || instruction.types[0] == Type::pred) unknown_form();
  return of_type(instruction, instruction.types[1]);
}

template <class T>
Outcome select_lanes(Warp& warp, const Instruction& instruction) {
  const LaneMask chosen = warp.predicate(instruction.operands[3]);
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  T* const result = warp.write<T>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = chosen >> lane & 1 ? a[lane] : b[lane]; });
  return Outcome::next;
}

Execution select_selection(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 4);
  switch (ptx::bytes_of(only_type(instruction))) {
    case 2:
      return {&select_lanes<std::uint16_t>};
    case 4:
      return {&select_lanes<std::uint32_t>};
    case 8:
      return {&select_lanes<std::uint64_t>};
    default:
      unknown_form();
  }
}

/// slct d, a, b, c: a where c is not negative; -0 is not, and a NaN is
template <class T, class C>
Outcome select_by_sign(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  const C* const c = warp.read<C>(instruction.operands[3]);
  T* const result = warp.write<T>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = c[lane] >= 0 ? a[lane] : b[lane]; });
  return Outcome::next;
}
Execution select_sign(const Instruction& instruction) {
  only_modifiers(instruction, {});
  plain_operands(instruction, 4);
  if (instruction.types.size() != 2) unknown_form();
  const bool by_float = instruction.types[1] == Type::f32;
  switch (ptx::bytes_of(instruction.types[0])) {
    case 4:
      return {by_float ? &select_by_sign<std::uint32_t, float>
                       : &select_by_sign<std::uint32_t, std::int32_t>};
    case 8:
      return {by_float ? &select_by_sign<std::uint64_t, float>
                       : &select_by_sign<std::uint64_t, std::int32_t>};
    default:
      unknown_form();
  }
}

}  // namespace

void add_comparison_handlers(HandlerTable& table) {
  table.add("setp", select_comparison);
  table.add("set", select_set);
  table.add("selp", select_selection);
  table.add("slct", select_sign);
}

}  // namespace tilescope::gpu::emulator
