// SPDX-License-Identifier: Apache-2.0
// atom and red. Lanes take their turns in rising order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "emulator/machine/instructions/half.hpp"
#include "emulator/machine/instructions/select.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;
using ptx::Type;

// What the memory holds next, of what it holds (old), and the operands.
struct AtomicAdd {
  auto operator()(auto old, auto b, auto) const { return old + b; }
};
struct AtomicMinimum {
  auto operator()(auto old, auto b, auto) const { return b < old ? b : old; }
};
struct AtomicMaximum {
  auto operator()(auto old, auto b, auto) const { return old < b ? b : old; }
};
struct AtomicAnd {
  auto operator()(auto old, auto b, auto) const { return old & b; }
};
struct AtomicOr {
  auto operator()(auto old, auto b, auto) const { return old | b; }
};
struct AtomicXor {
  auto operator()(auto old, auto b, auto) const { return old ^ b; }
};
struct AtomicExchange {
  auto operator()(auto, auto b, auto) const { return b; }
};
struct AtomicCompareAndSwap {
  auto operator()(auto old, auto expected, auto desired) const { return old == expected ? desired : old; }
};
/// Counts up to b and begins again at 0; counts down from b.
struct AtomicIncrement {
  template <class T>
  T operator()(T old, T b, T) const {
    return old >= b ? T{0} : static_cast<T>(old + 1);
  }
};
struct AtomicDecrement {
  template <class T>
  T operator()(T old, T b, T) const {
    return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
};

/// add, min and max of fp16 or bf16, in each half of a register where there are two.
template <Type type, class Combine>
struct AtomicOfHalves {
  template <class T>
  T operator()(T old, T b, T) const {
    T next = 0;
    for (unsigned shift = 0; shift < 8 * sizeof(T); shift += 16) {
      const auto half = [&](T word) { return static_cast<std::uint16_t>(word >> shift); };
      next = static_cast<T>(next | static_cast<T>(Combine{}(type, half(old), half(b))) << shift);
    }
    return next;
  }
};
struct SumOfHalves {
  std::uint16_t operator()(Type type, std::uint16_t a, std::uint16_t b) const { return half_sum(type, a, b); }
};
template <bool greatest>
struct ExtremeOfHalves {
  std::uint16_t operator()(Type type, std::uint16_t a, std::uint16_t b) const {
    const float x = half_value(type, a), y = half_value(type, b);
    return std::isnan(x) || (greatest ? x < y : y < x) ? b : a;
  }
};

/// The registers of a vector, or the one that there is.
std::span<const Operand> registers_of(const Operand& operand) {
  return operand.kind == Operand::Kind::vector ? std::span(operand.elements) : std::span(&operand, 1);
}

/// What an atomic works on; each element of a vector is an atomic of its own.
struct AtomicOperands {
  const Operand& address;
  std::span<const Operand> results;  // empty: none is asked for
  std::span<const Operand> b, c;
};

template <class Op, class T>
void update(Warp& warp, Reach reach, const AtomicOperands& operands) {
  const auto bytes = static_cast<std::uint32_t>(sizeof(T) * operands.b.size());
  const Targets targets = access(warp, operands.address, reach, Purpose::atomic, bytes);
  for (std::size_t element = 0; element < operands.b.size(); ++element) {
    const T* const second = warp.read<T>(operands.b[element]);
    const T* const third = operands.c.empty() ? second : warp.read<T>(operands.c[element]);
    const bool returns = !operands.results.empty() && operands.results[element].kind == Operand::Kind::reg;
    T* const result = returns ? warp.write<T>(operands.results[element]) : nullptr;
    for_lanes(warp.active, [&](int lane) {
      std::byte* const target = targets[lane] + sizeof(T) * element;
      T old;
      std::memcpy(&old, target, sizeof(T));
      const T next = Op{}(old, second[lane], third[lane]);
      std::memcpy(target, &next, sizeof(T));
      if (result) result[lane] = old;
    });
  }
}

template <class Op, class T, bool returns>
Outcome atomic(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  constexpr std::size_t address = returns ? 1 : 0;
  const auto operand = [&](std::size_t index) {
    return index < operands.size() ? registers_of(operands[index]) : std::span<const Operand>();
  };
  update<Op, T>(warp, reach_of(instruction),
                {operands[address], returns ? operand(0) : std::span<const Operand>(), operand(address + 1),
                 operand(address + 2)});
  return Outcome::next;
}

template <bool returns, class T>
Handler of_bits(const Instruction& instruction) {
  if (instruction.has("and")) return &atomic<AtomicAnd, T, returns>;
  if (instruction.has("or")) return &atomic<AtomicOr, T, returns>;
  if (instruction.has("xor")) return &atomic<AtomicXor, T, returns>;
  if (instruction.has("exch")) return &atomic<AtomicExchange, T, returns>;
  if (instruction.has("cas")) return &atomic<AtomicCompareAndSwap, T, returns>;
  unknown_form();
}
template <bool returns, class T>
Handler of_whole_numbers(const Instruction& instruction) {
  if (instruction.has("add")) return &atomic<AtomicAdd, T, returns>;
  if (instruction.has("min")) return &atomic<AtomicMinimum, T, returns>;
  if (instruction.has("max")) return &atomic<AtomicMaximum, T, returns>;
  if (instruction.has("inc")) return &atomic<AtomicIncrement, T, returns>;
  if (instruction.has("dec")) return &atomic<AtomicDecrement, T, returns>;
  return of_bits<returns, T>(instruction);
}

template <bool returns, Type type, class T>
Handler of_halves(const Instruction& instruction) {
  if (instruction.has("add")) return &atomic<AtomicOfHalves<type, SumOfHalves>, T, returns>;
  if (instruction.has("min")) return &atomic<AtomicOfHalves<type, ExtremeOfHalves<false>>, T, returns>;
  if (instruction.has("max")) return &atomic<AtomicOfHalves<type, ExtremeOfHalves<true>>, T, returns>;
  unknown_form();
}

template <bool returns>
Execution select_atomic(const Instruction& instruction) {
  const std::size_t address = returns ? 1 : 0;
  operand_count(instruction, address + 2, address + (instruction.has("cas") ? 3 : 2));
  if (instruction.operands[address].kind != Operand::Kind::address) unknown_form();
  const std::size_t count = instruction.has("v2")   ? 2
                            : instruction.has("v4") ? 4
                            : instruction.has("v8") ? 8
                                                    : 1;
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    const auto values = registers_of(instruction.operands[i]);
    const bool are_values = std::ranges::none_of(values, [](const Operand& value) {
      return value.kind == Operand::Kind::address || value.kind == Operand::Kind::label;
    });
    if (i != address && (values.size() != count || !are_values))
      throw std::runtime_error("values other than it has");
  }
  switch (only_type(instruction)) {
    case Type::b32:
      return {of_bits<returns, std::uint32_t>(instruction)};
    case Type::u32:
      return {of_whole_numbers<returns, std::uint32_t>(instruction)};
    case Type::s32:
      return {of_whole_numbers<returns, std::int32_t>(instruction)};
    case Type::b64:
      return {of_bits<returns, std::uint64_t>(instruction)};
    case Type::u64:
      return {of_whole_numbers<returns, std::uint64_t>(instruction)};
    case Type::s64:
      return {of_whole_numbers<returns, std::int64_t>(instruction)};
    case Type::b16:
      return {of_bits<returns, std::uint16_t>(instruction)};
    case Type::f16:
      return {of_halves<returns, Type::f16, std::uint16_t>(instruction)};
    case Type::bf16:
      return {of_halves<returns, Type::bf16, std::uint16_t>(instruction)};
    case Type::f16x2:
      return {of_halves<returns, Type::f16, std::uint32_t>(instruction)};
    case Type::bf16x2:
      return {of_halves<returns, Type::bf16, std::uint32_t>(instruction)};
    case Type::f32:
      if (instruction.has("add")) return {&atomic<AtomicAdd, float, returns>};
      break;
    case Type::f64:
      if (instruction.has("add")) return {&atomic<AtomicAdd, double, returns>};
      break;
    default:
      break;
  }
  unknown_form();
}

}  // namespace

void add_atomic_handlers(HandlerTable& table) {
  table.add("atom", select_atomic<true>);
  table.add("red", select_atomic<false>);
}

}  // namespace tilescope::gpu::emulator
