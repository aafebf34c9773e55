// SPDX-License-Identifier: Apache-2.0
// cvt. Rounds to nearest even (.rn) or, to whole numbers, as .rni, .rzi, .rmi and .rpi say; other roundings
// are in rounded_conversion.cpp. fp16, bf16 and fp8 are converted as cpu_ref converts them.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/rounded_conversion.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

template <class T>
using Lanes = std::array<T, kLanes>;

/// Reads values of a type from registers that may be wider.
template <class T>
TILESCOPE_SHARED_BY_HANDLERS Lanes<T> load_lanes(const Warp& warp, const ptx::Operand& operand) {
  Lanes<T> values;
  const auto from = [&](const auto* raw) {
    for (int lane = 0; lane < kLanes; ++lane)
      values[lane] = std::bit_cast<T>(static_cast<Bits<sizeof(T)>>(raw[lane]));
  };
  if (operand.bytes == 2) from(warp.read<std::uint16_t>(operand));
  if (operand.bytes == 4) from(warp.read<std::uint32_t>(operand));
  if (operand.bytes == 8) from(warp.read<std::uint64_t>(operand));
  return values;
}

/// Writes values of a type to registers that may be wider: with their sign, where the type has one.
template <class T>
TILESCOPE_SHARED_BY_HANDLERS void store_lanes(Warp& warp, const ptx::Operand& operand,
                                              const Lanes<T>& values) {
  const auto to = [&](auto* raw) {
    using Raw = std::remove_pointer_t<decltype(raw)>;
    each_lane(warp, [&](int lane) {
      if constexpr (std::is_integral_v<T>) {
        raw[lane] = static_cast<Raw>(values[lane]);
      } else {
        raw[lane] = static_cast<Raw>(std::bit_cast<Bits<sizeof(T)>>(values[lane]));
      }
    });
  };
  if (operand.bytes == 2) to(warp.write<std::uint16_t>(operand));
  if (operand.bytes == 4) to(warp.write<std::uint32_t>(operand));
  if (operand.bytes == 8) to(warp.write<std::uint64_t>(operand));
}

/// Beyond the integer's range lie its ends; NaN becomes 0.
template <class D, class F>
D clamped(F value) {
  if (value != value) return 0;
  constexpr D least = std::numeric_limits<D>::min(), most = std::numeric_limits<D>::max();
  if (value <= static_cast<F>(least)) return least;
  return value >= static_cast<F>(most) ? most : static_cast<D>(value);
}

template <class D, class S>
D converted(S source, Rounding rounding) {
  const auto value = widened(source);
  using Value = std::remove_const_t<decltype(value)>;
  if constexpr (std::is_integral_v<D> && std::is_integral_v<Value>) {
    return static_cast<D>(value);
  } else if constexpr (std::is_integral_v<D>) {
    return clamped<D>(round_to_integer(value, rounding));
  } else if constexpr (std::is_same_v<D, Half>) {
    return {fp32_to_fp16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<D, Bfloat>) {
    return {fp32_to_bf16(static_cast<float>(value))};
  } else if constexpr (std::is_integral_v<Value>) {
    return static_cast<D>(value);
  } else {
    const D result = static_cast<D>(round_to_integer(value, rounding));
    if constexpr (std::is_same_v<D, float>)
      return result == result ? result : std::bit_cast<float>(0x7fffffffu);
    return result;
  }
}

/// .ftz: fp32 numbers below the normal ones become zeros of their sign.
template <class T>
TILESCOPE_SHARED_BY_HANDLERS void flush(Lanes<T>& values) {
  if constexpr (std::is_same_v<T, float>) {
    for (float& value : values) {
      if (std::fabs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0f, value);
    }
  }
}

Rounding rounding_of(const Instruction& instruction) {
  if (instruction.has("rni")) return Rounding::nearest_even;
  if (instruction.has("rzi")) return Rounding::zero;
  if (instruction.has("rmi")) return Rounding::minus;
  return instruction.has("rpi") ? Rounding::plus : Rounding::none;
}

/// @tparam rounds  whether the instruction may ask for whole numbers
template <class D, class S, bool rounds>
Outcome convert(Warp& warp, const Instruction& instruction) {
  const Rounding rounding = rounds ? rounding_of(instruction) : Rounding::none;
  Lanes<S> source = load_lanes<S>(warp, instruction.operands[1]);
  Lanes<D> result{};
  const bool flushes = (std::is_same_v<S, float> || std::is_same_v<D, float>)&&instruction.has("ftz");
  if (flushes) flush(source);
  each_lane(warp, [&](int lane) { result[lane] = converted<D, S>(source[lane], rounding); });
  if (flushes) flush(result);
  store_lanes(warp, instruction.operands[0], result);
  return Outcome::next;
}

template <class D, class S>
Handler from_to(const Instruction& instruction) {
  constexpr bool whole = std::is_integral_v<S>,
                 to_half = std::is_same_v<D, Half> || std::is_same_v<D, Bfloat>;
  if constexpr (to_half && (whole || std::is_same_v<S, double>))
    unknown_form();  // it would round twice
  else if constexpr (to_half || whole)
    return &convert<D, S, false>;
  else
    return rounding_of(instruction) == Rounding::none ? &convert<D, S, false> : &convert<D, S, true>;
}

Handler between_scalars(const Instruction& instruction) {
  return with_number(instruction.types[1], [&](auto from) {
    return with_number(instruction.types[0],
                       [&](auto to) { return from_to<decltype(to), decltype(from)>(instruction); });
  });
}

// Pairs: of two fp32 operands the first becomes the upper half.
template <auto narrow, class Pair>
Outcome pack(Warp& warp, const Instruction& instruction) {
  const auto* const high = warp.read<float>(instruction.operands[1]);
  const auto* const low = warp.read<float>(instruction.operands[2]);
  auto* const result = warp.write<Pair>(instruction.operands[0]);
  for_lanes(warp.active, [=](int lane) {
    result[lane] = static_cast<Pair>(narrow(high[lane]) << (4 * sizeof(Pair)) | narrow(low[lane]));
  });
  return Outcome::next;
}
template <auto widen>
Outcome fp8_to_halves(Warp& warp, const Instruction& instruction) {
  const auto* const pair = warp.read<std::uint16_t>(instruction.operands[1]);
  auto* const result = warp.write<std::uint32_t>(instruction.operands[0]);
  const auto half = [](std::uint32_t bits) {
    return std::uint32_t{fp32_to_fp16(widen(static_cast<std::uint8_t>(bits)))};
  };
  for_lanes(warp.active,
            [=](int lane) { result[lane] = half(pair[lane] >> 8u) << 16 | half(pair[lane] & 0xffu); });
  return Outcome::next;
}
template <auto narrow>
Outcome halves_to_fp8(Warp& warp, const Instruction& instruction) {
  const auto* const pair = warp.read<std::uint32_t>(instruction.operands[1]);
  auto* const result = warp.write<std::uint16_t>(instruction.operands[0]);
  const auto byte = [](std::uint32_t half) { return narrow(fp16_to_fp32(static_cast<std::uint16_t>(half))); };
  for_lanes(warp.active, [=](int lane) {
    result[lane] = static_cast<std::uint16_t>(byte(pair[lane] >> 16) << 8 | byte(pair[lane] & 0xffff));
  });
  return Outcome::next;
}

Handler of_pairs(const Instruction& instruction) {
  const Type to = instruction.types[0], from = instruction.types[1];
  const bool saturates = instruction.has("satfinite");
  if (from == Type::f32 && instruction.operands.size() == 3) {
    if (to == Type::f16x2 && !saturates) return &pack<fp32_to_fp16, std::uint32_t>;
    if (to == Type::bf16x2 && !saturates) return &pack<fp32_to_bf16, std::uint32_t>;
    if (to == Type::e4m3x2 && saturates) return &pack<fp32_to_fp8e4m3, std::uint16_t>;
    if (to == Type::e5m2x2 && saturates) return &pack<fp32_to_fp8e5m2, std::uint16_t>;
  }
  if (to == Type::f16x2 && from == Type::e4m3x2) return &fp8_to_halves<fp8e4m3_to_fp32>;
  if (to == Type::f16x2 && from == Type::e5m2x2) return &fp8_to_halves<fp8e5m2_to_fp32>;
  if (to == Type::e4m3x2 && from == Type::f16x2 && saturates) return &halves_to_fp8<fp32_to_fp8e4m3>;
  if (to == Type::e5m2x2 && from == Type::f16x2 && saturates) return &halves_to_fp8<fp32_to_fp8e5m2>;
  return nullptr;
}

/// cvt.sat.f32.f32: to [0, 1]; NaN becomes 0.
struct Saturate {
  float operator()(float a) const { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }
};

struct FlushAndSaturate {
  float operator()(float a) const { return a < std::numeric_limits<float>::min() ? 0.0f : Saturate{}(a); }
};

Execution select_conversion(const Instruction& instruction) {
  operand_count(instruction, 2, 3);
  if (instruction.opcode == "cvt.sat.f32.f32") return {&unary<Saturate, float>};
  if (instruction.opcode == "cvt.ftz.sat.f32.f32") return {&unary<FlushAndSaturate, float>};
  if (needs_own_rounding(instruction) && !instruction.has("satfinite"))
    return {select_own_rounding(instruction)};
  only_modifiers(instruction, {"rn", "rni", "rzi", "rmi", "rpi", "ftz", "satfinite"});
  if (instruction.types.size() != 2) unknown_form();
  plain_operands(instruction, instruction.operands.size() == 3 ? 3 : 2);
  if (const Handler handler = of_pairs(instruction)) return {handler};
  if (instruction.has("satfinite")) unknown_form();
  return {between_scalars(instruction)};
}

}  // namespace

void add_conversion_handlers(HandlerTable& table) { table.add("cvt", select_conversion); }

}  // namespace tilescope::gpu::emulator
