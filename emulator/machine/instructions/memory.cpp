// SPDX-License-Identifier: Apache-2.0
// ld and st. Caches, and how far what was written is seen, make no difference here: memory is one.
#include <cstring>

#include "emulator/machine/instructions/select.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::Type;

/// One register of a load: T in memory, R in the register, which may be wider.
template <class T, class R>
void load_register(Warp& warp, const Operand& to, const Targets& targets, std::size_t offset) {
  R* const values = warp.write<R>(to);
  for_lanes(warp.active, [&](int lane) {
    T value;
    std::memcpy(&value, targets[lane] + offset, sizeof(T));
    values[lane] = static_cast<R>(value);
  });
}
template <class T>
void load_element(Warp& warp, const Operand& to, const Targets& targets, std::size_t offset) {
  switch (to.bytes) {
    case 2:
      return load_register<T, std::uint16_t>(warp, to, targets, offset);
    case 4:
      return load_register<T, std::uint32_t>(warp, to, targets, offset);
    default:
      return load_register<T, std::uint64_t>(warp, to, targets, offset);
  }
}

template <class T>
void store_element(const Warp& warp, const Operand& from, const Targets& targets, std::size_t offset) {
  const auto store = [&](const auto* values) {
    for_lanes(warp.active, [&](int lane) {
      const T value = static_cast<T>(values[lane]);
      std::memcpy(targets[lane] + offset, &value, sizeof(T));
    });
  };
  if (from.bytes == 2) store(warp.read<std::uint16_t>(from));
  if (from.bytes == 4) store(warp.read<std::uint32_t>(from));
  if (from.bytes == 8) store(warp.read<std::uint64_t>(from));
}

/// f(operand) for the registers of a vector, or for the one that there is.
template <class F>
void each_element(const Operand& operand, F&& f) {
  if (operand.kind != Operand::Kind::vector) return f(operand);
  for (const Operand& element : operand.elements) f(element);
}
std::uint32_t elements_of(const Operand& operand) {
  return operand.kind == Operand::Kind::vector ? static_cast<std::uint32_t>(operand.elements.size()) : 1;
}

template <class T, Reach reach, Outcome outcome>
Outcome load(Warp& warp, const Instruction& instruction) {
  const Operand& to = instruction.operands[0];
  const Targets targets = access(warp, instruction.operands[1], reach, Purpose::load,
                                 static_cast<std::uint32_t>(sizeof(T)) * elements_of(to));
  std::size_t offset = 0;
  each_element(to, [&](const Operand& element) {
    if (element.kind != Operand::Kind::none) load_element<T>(warp, element, targets, offset);
    offset += sizeof(T);
  });
  return outcome;
}

template <class T, Reach reach, Outcome outcome>
Outcome store(Warp& warp, const Instruction& instruction) {
  const Operand& from = instruction.operands[1];
  const Targets targets = access(warp, instruction.operands[0], reach, Purpose::store,
                                 static_cast<std::uint32_t>(sizeof(T)) * elements_of(from));
  std::size_t offset = 0;
  each_element(from, [&](const Operand& element) {
    store_element<T>(warp, element, targets, offset);
    offset += sizeof(T);
  });
  return outcome;
}

template <bool is_load, class T, Reach reach>
Handler with_outcome(bool polls) {
  if constexpr (is_load) return polls ? &load<T, reach, Outcome::poll> : &load<T, reach, Outcome::next>;
  return &store<T, reach, Outcome::next>;
}
template <bool is_load, class T>
Handler of_reach(const Instruction& instruction, bool polls) {
  switch (reach_of(instruction)) {
    case Reach::generic:
      return with_outcome<is_load, T, Reach::generic>(polls);
    case Reach::global:
      return with_outcome<is_load, T, Reach::global>(polls);
    case Reach::shared:
      return with_outcome<is_load, T, Reach::shared>(polls);
    case Reach::parameter:
      return with_outcome<is_load, T, Reach::parameter>(polls);
    case Reach::local:
      return with_outcome<is_load, T, Reach::local>(polls);
  }
  unknown_form();
}

/// As many registers as .v2 and .v4 say, of 16 bytes together at most.
void check_values(const Instruction& instruction, const Operand& values) {
  const std::size_t count = instruction.has("v2") ? 2 : instruction.has("v4") ? 4 : 1;
  const bool is_list = values.kind == Operand::Kind::vector;
  const bool is_address = values.kind == Operand::Kind::address || values.kind == Operand::Kind::label;
  if ((is_list ? values.elements.size() : 1) != count || is_address)
    throw std::runtime_error("values other than it has");
  if (count * static_cast<std::size_t>(ptx::bytes_of(only_type(instruction))) > 16) unknown_form();
}

template <bool is_load>
Execution select_access(const Instruction& instruction) {
  operand_count(instruction, 2, 3);  // the third is a cache policy
  if (instruction.operands[is_load ? 1 : 0].kind != Operand::Kind::address) unknown_form();
  check_values(instruction, instruction.operands[is_load ? 0 : 1]);
  // A thread that asks with .acquire, .relaxed or .volatile may wait for another: others go on first.
  const bool polls =
      reach_of(instruction) == Reach::global &&
      (instruction.has("acquire") || instruction.has("relaxed") || instruction.has("volatile"));
  switch (only_type(instruction)) {
    case Type::b8:
    case Type::u8:
      return {of_reach<is_load, std::uint8_t>(instruction, polls)};
    case Type::s8:
      return {of_reach<is_load, std::int8_t>(instruction, polls)};
    case Type::f16:
    case Type::bf16:
      return {of_reach<is_load, std::uint16_t>(instruction, polls)};
    case Type::f32:
      return {of_reach<is_load, std::uint32_t>(instruction, polls)};
    case Type::f64:
      return {of_reach<is_load, std::uint64_t>(instruction, polls)};
    default:
      return {with_integer(only_type(instruction),
                           [&](auto as) { return of_reach<is_load, decltype(as)>(instruction, polls); })};
  }
}

}  // namespace

void add_memory_handlers(HandlerTable& table) {
  table.add("ld", select_access<true>);
  table.add("st", select_access<false>);
}

}  // namespace tilescope::gpu::emulator
