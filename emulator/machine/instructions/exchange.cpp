// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp tell one another: shfl, vote, match, redux, elect, activemask.
#include <algorithm>
#include <functional>

#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;

enum class Shuffle { up, down, butterfly, index };

/// Which lane a lane reads, and whether that is one of its segment (PTX ISA, "shfl.sync").
template <Shuffle mode>
std::pair<int, bool> source_lane(int lane, int b, std::uint32_t c) {
  const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
  const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  const int wanted = mode == Shuffle::up          ? lane - b
                     : mode == Shuffle::down      ? lane + b
                     : mode == Shuffle::butterfly ? lane ^ b
                                                  : first | (b & ~segment);
  const bool inside = mode == Shuffle::up ? wanted >= last : wanted <= last;
  return {inside ? wanted : lane, inside};
}

/// shfl.sync.MODE.b32 d|p, a, b, c, membermask. A lane that is not there gives all ones, which is a NaN.
template <Shuffle mode>
Outcome shuffle(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const bool tells = operands[0].kind == Operand::Kind::vector;
  const auto* const a = warp.read<std::uint32_t>(operands[1]);
  const auto* const b = warp.read<std::uint32_t>(operands[2]);
  const auto* const c = warp.read<std::uint32_t>(operands[3]);
  std::uint32_t values[kLanes];
  LaneMask inside = 0;
  for_lanes(warp.active, [&](int lane) {
    const auto [source, is_inside] = source_lane<mode>(lane, static_cast<int>(b[lane] & 31), c[lane]);
    values[lane] = warp.active >> source & 1 ? a[source] : ~0u;
    inside |= static_cast<LaneMask>(is_inside) << lane;
  });
  const Operand& to = tells ? operands[0].elements[0] : operands[0];
  if (to.kind == Operand::Kind::reg) {
    auto* const result = warp.write<std::uint32_t>(to);
    each_lane(warp, [&](int lane) { result[lane] = values[lane]; });
  }
  if (tells) warp.set_predicate(operands[0].elements[1], inside);
  return Outcome::next;
}
Execution select_shuffle(const Instruction& instruction) {
  only_modifiers(instruction, {"sync", "up", "down", "bfly", "idx"});
  operand_count(instruction, 5, 5);
  if (instruction.has("up")) return {&shuffle<Shuffle::up>, Converge::members};
  if (instruction.has("down")) return {&shuffle<Shuffle::down>, Converge::members};
  if (instruction.has("bfly")) return {&shuffle<Shuffle::butterfly>, Converge::members};
  return {&shuffle<Shuffle::index>, Converge::members};
}

/// The lanes that take part with one, of those at the instruction.
LaneMask members(const Warp& warp, const Operand& mask, int lane) {
  return static_cast<LaneMask>(warp.value(mask, lane)) & warp.active;
}

enum class Vote { any, all, uniform };
template <Vote kind>
Outcome vote(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask yes = warp.predicate(operands[1]);
  LaneMask result = 0;
  for_lanes(warp.active, [&](int lane) {
    const LaneMask mask = members(warp, operands[2], lane), agreeing = yes & mask;
    const bool carried =
        kind == Vote::any ? agreeing != 0 : agreeing == mask || (kind == Vote::uniform && agreeing == 0);
    result |= static_cast<LaneMask>(carried) << lane;
  });
  warp.set_predicate(operands[0], result);
  return Outcome::next;
}
Outcome ballot(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const LaneMask yes = warp.predicate(operands[1]);
  auto* const result = warp.write<std::uint32_t>(operands[0]);
  for_lanes(warp.active, [&](int lane) { result[lane] = yes & members(warp, operands[2], lane); });
  return Outcome::next;
}
Execution select_vote(const Instruction& instruction) {
  operand_count(instruction, 3, 3);
  if (instruction.has("ballot")) return {&ballot, Converge::members};
  if (instruction.has("any")) return {&vote<Vote::any>, Converge::members};
  if (instruction.has("all")) return {&vote<Vote::all>, Converge::members};
  if (instruction.has("uni")) return {&vote<Vote::uniform>, Converge::members};
  unknown_form();
}

template <class Op, class T>
Outcome reduce(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  T values[kLanes];
  std::copy_n(warp.read<T>(operands[1]), kLanes, values);
  T* const result = warp.write<T>(operands[0]);
  for_lanes(warp.active, [&](int lane) {
    LaneMask others = members(warp, operands[2], lane);
    T sum = values[__builtin_ctz(others)];
    for_lanes(others & (others - 1), [&](int other) { sum = Op{}(sum, values[other]); });
    result[lane] = sum;
  });
  return Outcome::next;
}
struct SumOf {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a + b; }
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return static_cast<std::int32_t>((*this)(std::uint32_t(a), std::uint32_t(b)));
  }
};
using AllOf = std::bit_and<>;
using AnyOf = std::bit_or<>;
using OddOf = std::bit_xor<>;
struct LesserOf {
  auto operator()(auto a, auto b) const { return std::min(a, b); }
};
struct GreaterOf {
  auto operator()(auto a, auto b) const { return std::max(a, b); }
};
template <class T>
Handler of_reduction(const Instruction& instruction) {
  if (instruction.has("add")) return &reduce<SumOf, T>;
  if (instruction.has("min")) return &reduce<LesserOf, T>;
  if (instruction.has("max")) return &reduce<GreaterOf, T>;
  unknown_form();
}
Execution select_reduction(const Instruction& instruction) {
  operand_count(instruction, 3, 3);
  if (only_type(instruction) == ptx::Type::b32) {
    if (instruction.has("and")) return {&reduce<AllOf, std::uint32_t>, Converge::members};
    if (instruction.has("or")) return {&reduce<AnyOf, std::uint32_t>, Converge::members};
    if (instruction.has("xor")) return {&reduce<OddOf, std::uint32_t>, Converge::members};
    unknown_form();
  }
  if (only_type(instruction) == ptx::Type::s32)
    return {of_reduction<std::int32_t>(instruction), Converge::members};
  return {of_reduction<std::uint32_t>(instruction), Converge::members};
}

/// match.any: the lanes that have the same number
template <class T>
Outcome match_any(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const T* const values = warp.read<T>(operands[1]);
  LaneMask same[kLanes] = {};
  for_lanes(warp.active, [&](int lane) {
    for_lanes(members(warp, operands[2], lane),
              [&](int other) { same[lane] |= LaneMask{values[other] == values[lane]} << other; });
  });
  auto* const result = warp.write<std::uint32_t>(operands[0]);
  for_lanes(warp.active, [&](int lane) { result[lane] = same[lane]; });
  return Outcome::next;
}
/// match.all d|p: all of them and true, where all have the same number; else 0
template <class T>
Outcome match_all(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const Operand& to = operands[0].kind == Operand::Kind::vector ? operands[0].elements[0] : operands[0];
  const T* const values = warp.read<T>(operands[1]);
  LaneMask all_same[kLanes] = {}, agreeing = 0;
  for_lanes(warp.active, [&](int lane) {
    const LaneMask mask = members(warp, operands[2], lane);
    bool same = true;
    for_lanes(mask, [&](int other) { same = same && values[other] == values[lane]; });
    all_same[lane] = same ? mask : 0;
    agreeing |= LaneMask{same} << lane;
  });
  if (to.kind == Operand::Kind::reg)
    for_lanes(warp.active, [&](int lane) { warp.set_value(to, lane, all_same[lane]); });
  if (&to != &operands[0]) warp.set_predicate(operands[0].elements[1], agreeing);
  return Outcome::next;
}
Execution select_match(const Instruction& instruction) {
  only_modifiers(instruction, {"any", "all", "sync"});
  operand_count(instruction, 3, 3);
  const bool wide = ptx::bytes_of(only_type(instruction)) == 8;
  if (instruction.has("any"))
    return {wide ? &match_any<std::uint64_t> : &match_any<std::uint32_t>, Converge::members};
  return {wide ? &match_all<std::uint64_t> : &match_all<std::uint32_t>, Converge::members};
}

/// elect.sync d|p, membermask: one lane of the mask, the lowest here
Outcome elect(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  LaneMask elected = 0;
  for_lanes(warp.active, [&](int lane) {
    const auto leader = static_cast<std::uint32_t>(__builtin_ctz(members(warp, operands[1], lane)));
    elected |= 1u << leader;
    if (operands[0].elements[0].kind == Operand::Kind::reg)
      warp.set_value(operands[0].elements[0], lane, leader);
  });
  warp.set_predicate(operands[0].elements[1], elected);
  return Outcome::next;
}

Outcome active_mask(Warp& warp, const Instruction& instruction) {
  const LaneMask mask = warp.active;
  for_lanes(mask, [&](int lane) { warp.set_value(instruction.operands[0], lane, mask); });
  return Outcome::next;
}

}  // namespace

void add_exchange_handlers(HandlerTable& table) {
  table.add("shfl.sync", select_shuffle);
  table.add("vote.sync", select_vote);
  table.add("redux.sync", select_reduction);
  table.add("match.any.sync", select_match);
  table.add("match.all.sync", select_match);
  table.add("elect.sync", [](const Instruction& instruction) {
    operand_count(instruction, 2, 2);
    if (instruction.operands[0].elements.size() != 2) unknown_form();
    return Execution{&elect, Converge::members};
  });
  table.add("activemask", [](const Instruction& instruction) {
    operand_count(instruction, 1, 1);
    return Execution{&active_mask};
  });
}

}  // namespace tilescope::gpu::emulator
