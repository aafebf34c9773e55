// SPDX-License-Identifier: Apache-2.0
// mov, with its packing and unpacking, and cvta.
#include <cstdint>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;

struct Same {
  auto operator()(auto a) const { return a; }
};

Outcome move_predicate(Warp& warp, const Instruction& instruction) {
  warp.set_predicate(instruction.operands[0], warp.predicate(instruction.operands[1]));
  return Outcome::next;
}

Outcome read_clock(Warp& warp, const Instruction& instruction) {
  const std::uint64_t steps = warp.cta.run.clock();
  for_lanes(warp.active, [&](int lane) { warp.set_value(instruction.operands[0], lane, steps); });
  return Outcome::next;
}

/// mov.b64 d, {a, b}: a are the low bits
Outcome pack(Warp& warp, const Instruction& instruction) {
  const auto& parts = instruction.operands[1].elements;
  const auto bits =
      static_cast<unsigned>(8 * ptx::bytes_of(instruction.types[0])) / static_cast<unsigned>(parts.size());
  const std::uint64_t mask = ~0ull >> (64 - bits);
  for_lanes(warp.active, [&](int lane) {
    std::uint64_t whole = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) whole |= (warp.value(parts[i], lane) & mask) << (bits * i);
    warp.set_value(instruction.operands[0], lane, whole);
  });
  return Outcome::next;
}

Outcome unpack(Warp& warp, const Instruction& instruction) {
  const auto& parts = instruction.operands[0].elements;
  const auto bits =
      static_cast<unsigned>(8 * ptx::bytes_of(instruction.types[0])) / static_cast<unsigned>(parts.size());
  for_lanes(warp.active, [&](int lane) {
    const std::uint64_t whole = warp.value(instruction.operands[1], lane);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].kind != Operand::Kind::none) warp.set_value(parts[i], lane, whole >> (bits * i));
    }
  });
  return Outcome::next;
}

/// Two halves of a 32-bit register, the form that products of fp16 use most.
Outcome unpack_halves(Warp& warp, const Instruction& instruction) {
  const auto* const whole = warp.read<std::uint32_t>(instruction.operands[1]);
  auto* const low = warp.write<std::uint16_t>(instruction.operands[0].elements[0]);
  auto* const high = warp.write<std::uint16_t>(instruction.operands[0].elements[1]);
  each_lane(warp, [=](int lane) {
    const std::uint32_t both = whole[lane];
    low[lane] = static_cast<std::uint16_t>(both);
    high[lane] = static_cast<std::uint16_t>(both >> 16);
  });
  return Outcome::next;
}

bool are_registers(const std::vector<Operand>& operands, int bytes) {
  for (const Operand& operand : operands) {
    if (operand.kind != Operand::Kind::reg || operand.bytes != bytes) return false;
  }
  return true;
}

Execution select_move(const Instruction& instruction) {
  only_modifiers(instruction, {});
  operand_count(instruction, 2, 2);
  const Operand &to = instruction.operands[0], &from = instruction.operands[1];
  const ptx::Type type = only_type(instruction);
  if (from.kind == Operand::Kind::label) throw std::runtime_error("addresses of labels are not known");
  if (type == ptx::Type::pred) return {&move_predicate};
  if (from.kind == Operand::Kind::clock) return {&read_clock};
  if (from.kind == Operand::Kind::vector) return {&pack};
  if (to.kind == Operand::Kind::vector)
    return {to.elements.size() == 2 && are_registers(to.elements, 2) && are_registers({from}, 4)
                ? &unpack_halves
                : &unpack};
  if (to.bytes != ptx::bytes_of(type) || (from.kind == Operand::Kind::reg && from.bytes != to.bytes))
    throw std::runtime_error("registers of another width than the type's");
  switch (to.bytes) {
    case 2:
      return {&unary<Same, std::uint16_t>};
    case 4:
      return {&unary<Same, std::uint32_t>};
    default:
      return {&unary<Same, std::uint64_t>};
  }
}

/// Between a generic address and one of its space, which differ by where the space's window lies.
template <std::uint64_t window, bool to_space>
struct MoveWindow {
  std::uint64_t operator()(std::uint64_t address) const {
    return to_space ? address - window : address + window;
  }
};
template <std::uint64_t window>
Execution through_window(const Instruction& instruction) {
  return {instruction.has("to") ? &unary<MoveWindow<window, true>, std::uint64_t>
                                : &unary<MoveWindow<window, false>, std::uint64_t>};
}

Execution select_address_conversion(const Instruction& instruction) {
  if (only_type(instruction) != ptx::Type::u64) unknown_form();
  if (instruction.has("shared") || instruction.has("shared::cta") || instruction.has("shared::cluster"))
    return through_window<kSharedWindow>(instruction);
  if (instruction.has("param")) return through_window<kParameterWindow>(instruction);
  if (instruction.has("local")) return through_window<kLocalWindow>(instruction);
  if (instruction.has("global") || instruction.has("const")) return {&unary<Same, std::uint64_t>};
  unknown_form();
}

}  // namespace

void add_move_handlers(HandlerTable& table) {
  table.add("mov", select_move);
  table.add("cvta", select_address_conversion, "rv");
}

}  // namespace tilescope::gpu::emulator
