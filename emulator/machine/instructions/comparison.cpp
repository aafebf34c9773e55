// SPDX-License-Identifier: Apache-2.0
// setp and selp.
#include <cstdint>

#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

// The relations; a comparison with a NaN is false in the ordered ones and true in the unordered ones.
struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct Ordered {
  template <class T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
template <class Opposite>
struct Unless {
  template <class T>
  bool operator()(T a, T b) const {
    return !Opposite{}(a, b);
  }
};

template <class Op, class T>
LaneMask compare(const Warp& warp, const ptx::Operand& left, const ptx::Operand& right) {
  const T* const a = warp.read<T>(left);
  const T* const b = warp.read<T>(right);
  LaneMask mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= static_cast<LaneMask>(Op{}(a[lane], b[lane])) << lane;
  return mask;
}

enum class Combine { none, conjunction, disjunction, exclusive };

/// setp.CMP{.BOOL} p|q, a, b, c: p = (a CMP b) BOOL c, q = !(a CMP b) BOOL c
template <class Op, class T, Combine combine>
Outcome set_predicates(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask found = compare<Op, T>(warp, operands[1], operands[2]);
  const LaneMask other = combine == Combine::none ? 0 : warp.predicate(operands[3]);
  const auto combined = [&](LaneMask mask) {
    return combine == Combine::none          ? mask
           : combine == Combine::conjunction ? mask & other
           : combine == Combine::disjunction ? mask | other
                                             : mask ^ other;
  };
  const bool both = operands[0].kind == ptx::Operand::Kind::vector;
  warp.set_predicate(both ? operands[0].elements[0] : operands[0], combined(found));
  if (both) warp.set_predicate(operands[0].elements[1], combined(~found));
  return Outcome::next;
}

template <class Op, class T>
Handler with_combination(const Instruction& instruction) {
  if (instruction.has("and")) return &set_predicates<Op, T, Combine::conjunction>;
  if (instruction.has("or")) return &set_predicates<Op, T, Combine::disjunction>;
  if (instruction.has("xor")) return &set_predicates<Op, T, Combine::exclusive>;
  return &set_predicates<Op, T, Combine::none>;
}

template <class T>
Handler of_relation(const Instruction& instruction) {
  const std::string_view name = instruction.modifiers[0];
  if (name == "eq") return with_combination<Equal, T>(instruction);
  if (name == "lt" || name == "lo") return with_combination<Less, T>(instruction);
  if (name == "le" || name == "ls") return with_combination<LessEqual, T>(instruction);
  if (name == "gt" || name == "hi") return with_combination<Greater, T>(instruction);
  if (name == "ge" || name == "hs") return with_combination<GreaterEqual, T>(instruction);
  if (name == "ne") return with_combination<NotEqual, T>(instruction);
  if (name == "neu") return with_combination<Unless<Equal>, T>(instruction);
  if (name == "equ") return with_combination<Unless<NotEqual>, T>(instruction);
  if (name == "ltu") return with_combination<Unless<GreaterEqual>, T>(instruction);
  if (name == "leu") return with_combination<Unless<Greater>, T>(instruction);
  if (name == "gtu") return with_combination<Unless<LessEqual>, T>(instruction);
  if (name == "geu") return with_combination<Unless<Less>, T>(instruction);
  if (name == "num") return with_combination<Ordered, T>(instruction);
  if (name == "nan") return with_combination<Unless<Ordered>, T>(instruction);
  unknown_form();
}

Execution select_comparison(const Instruction& instruction) {
  operand_count(instruction, 3, 4);
  switch (only_type(instruction)) {
    case Type::b16:
    case Type::u16:
      return {of_relation<std::uint16_t>(instruction)};
    case Type::s16:
      return {of_relation<std::int16_t>(instruction)};
    case Type::b32:
    case Type::u32:
      return {of_relation<std::uint32_t>(instruction)};
    case Type::s32:
      return {of_relation<std::int32_t>(instruction)};
    case Type::b64:
    case Type::u64:
      return {of_relation<std::uint64_t>(instruction)};
    case Type::s64:
      return {of_relation<std::int64_t>(instruction)};
    case Type::f32:
      return {of_relation<float>(instruction)};
    case Type::f64:
      return {of_relation<double>(instruction)};
    default:
      unknown_form();
  }
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

}  // namespace

void add_comparison_handlers(HandlerTable& table) {
  table.add("setp", select_comparison);
  table.add("selp", select_selection);
}

}  // namespace tilescope::gpu::emulator
