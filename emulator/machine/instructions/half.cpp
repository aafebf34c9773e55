// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16, single and in pairs: add, sub, mul, fma, min, max, abs, neg, tanh, ex2, and comparisons.
// Each result is rounded once: fp32 holds sums and products with more than twice the bits, and what fma sums
// in fp64 is rounded to odd first.
#include "emulator/machine/instructions/half.hpp"

#include <cmath>
#include <functional>
#include <utility>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/rounding.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

constexpr std::uint16_t kSign = 0x8000, kNan = 0x7fff;

struct Fp16 {
  static float widen(std::uint16_t bits) { return fp16_to_fp32(bits); }
  static std::uint16_t narrow(float value) { return value == value ? fp32_to_fp16(value) : kNan; }
  static constexpr std::uint16_t least_normal = 0x0400, one = 0x3c00;
};
struct Bf16 {
  static float widen(std::uint16_t bits) { return bf16_to_fp32(bits); }
  static std::uint16_t narrow(float value) { return value == value ? fp32_to_bf16(value) : kNan; }
  static constexpr std::uint16_t least_normal = 0x0080, one = 0x3f80;
};

// Operations on numbers that were widened.
using Add = std::plus<>;
using Subtract = std::minus<>;
using Multiply = std::multiplies<>;
struct MultiplyAdd {
  float operator()(float a, float b, float c) const {
    return to_odd(sum_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
  }
};
struct Absolute {
  float operator()(float a) const { return std::fabs(a); }
};
using Negate = std::negate<>;
struct HyperbolicTangent {
  float operator()(float a) const { return to_odd(std::tanh(static_cast<double>(a))); }
};
struct PowerOfTwo {
  float operator()(float a) const { return to_odd(std::exp2(static_cast<double>(a))); }
};

/// What modifiers ask for: .ftz, subnormal operands and results as zeros with their sign; of results, .sat to
/// [0, 1] with NaN as 0, or .relu to no less than 0.
struct Modifiers {
  explicit Modifiers(const Instruction& instruction)
      : ftz(instruction.has("ftz")), saturate(instruction.has("sat")), relu(instruction.has("relu")) {}
  bool any() const { return ftz || saturate || relu; }

  bool ftz, saturate, relu;
};

/// An operation on single halves, without and with modifiers.
template <class Format, class Op>
struct Single {
  template <class... Halves>
  std::uint16_t operator()(Halves... operands) const {
    return Format::narrow(Op{}(Format::widen(operands)...));
  }
};
template <class Format, class Op>
struct Modified {
  std::uint16_t flush(std::uint16_t bits) const {
    return modifiers.ftz && (bits & ~kSign) < Format::least_normal ? bits & kSign : bits;
  }
  template <class... Halves>
  std::uint16_t operator()(Halves... operands) const {
    const std::uint16_t bits = flush(Single<Format, Op>{}(flush(operands)...));
    const bool is_nan = Format::widen(bits) != Format::widen(bits);
    if (modifiers.saturate) return is_nan || bits & kSign ? 0 : std::min(bits, Format::one);
    if (modifiers.relu) return is_nan ? kNan : bits & kSign ? 0 : bits;
    return bits;
  }
  Modifiers modifiers;
};
/// The same on both halves of a register.
template <class One>
struct Pair {
  template <class... Words>
  std::uint32_t operator()(Words... operands) const {
    const auto half = [&](int shift) {
      return std::uint32_t{one(static_cast<std::uint16_t>(operands >> shift)...)};
    };
    return half(16) << 16 | half(0);
  }
  One one{};
};

template <class Op, class T, std::size_t operands>
constexpr Handler plain_handler() {
  if constexpr (operands == 1) return &unary<Op, T>;
  if constexpr (operands == 2) return &binary<Op, T>;
  if constexpr (operands == 3) return &ternary<Op, T>;
}

/// T: a half, or a pair of them.
template <class Format, class Op, class T, std::size_t operands>
Outcome modified(Warp& warp, const Instruction& instruction) {
  const Modified<Format, Op> one{Modifiers(instruction)};
  const T* in[operands];
  for (std::size_t i = 0; i < operands; ++i) in[i] = warp.read<T>(instruction.operands[i + 1]);
  T* const result = warp.write<T>(instruction.operands[0]);
  const auto compute = [&]<std::size_t... i>(std::index_sequence<i...>) {
    for_lanes(warp.active, [&](int lane) {
      if constexpr (sizeof(T) == sizeof(std::uint16_t)) {
        result[lane] = one(in[i][lane]...);
      } else {
        result[lane] = Pair<Modified<Format, Op>>{one}(in[i][lane]...);
      }
    });
  };
  compute(std::make_index_sequence<operands>());
  return Outcome::next;
}

template <class Format, class Op, std::size_t operands>
Handler of_modifiers(const Instruction& instruction, bool pair) {
  using One = Single<Format, Op>;
  if (Modifiers(instruction).any())
    return pair ? &modified<Format, Op, std::uint32_t, operands>
                : &modified<Format, Op, std::uint16_t, operands>;
  return pair ? plain_handler<Pair<One>, std::uint32_t, operands>()
              : plain_handler<One, std::uint16_t, operands>();
}

template <class Op, std::size_t operands>
Execution of_format(const Instruction& instruction) {
  plain_operands(instruction, operands + 1);
  switch (only_type(instruction)) {
    case Type::f16:
      return {of_modifiers<Fp16, Op, operands>(instruction, false)};
    case Type::bf16:
      return {of_modifiers<Bf16, Op, operands>(instruction, false)};
    case Type::f16x2:
      return {of_modifiers<Fp16, Op, operands>(instruction, true)};
    case Type::bf16x2:
      return {of_modifiers<Bf16, Op, operands>(instruction, true)};
    default:
      unknown_form();
  }
}

template <bool greatest>
Execution select_extreme(const Instruction& instruction) {
  only_modifiers(instruction, {"NaN", "ftz"});
  return instruction.has("NaN") ? of_format<Extreme<greatest, true>, 2>(instruction)
                                : of_format<Extreme<greatest, false>, 2>(instruction);
}

}  // namespace

Execution select_half(Arithmetic operation, const Instruction& instruction) {
  if (operation == Arithmetic::minimum) return select_extreme<false>(instruction);
  if (operation == Arithmetic::maximum) return select_extreme<true>(instruction);
  only_modifiers(instruction, {"rn", "ftz", "sat"});
  switch (operation) {
    case Arithmetic::add:
      return of_format<Add, 2>(instruction);
    case Arithmetic::subtract:
      return of_format<Subtract, 2>(instruction);
    case Arithmetic::multiply:
      return of_format<Multiply, 2>(instruction);
    case Arithmetic::absolute:
      return of_format<Absolute, 1>(instruction);
    case Arithmetic::negate:
      return of_format<Negate, 1>(instruction);
    default:
      unknown_form();
  }
}

Execution select_half_multiply_add(const Instruction& instruction) {
  only_modifiers(instruction, {"rn", "ftz", "sat", "relu"});
  return of_format<MultiplyAdd, 3>(instruction);
}

Execution select_half_function(const Instruction& instruction) {
  only_modifiers(instruction, {"approx", "ftz"});
  return instruction.opcode.starts_with("tanh") ? of_format<HyperbolicTangent, 1>(instruction)
                                                : of_format<PowerOfTwo, 1>(instruction);
}

float half_value(Type type, std::uint16_t bits) {
  return type == Type::f16 || type == Type::f16x2 ? Fp16::widen(bits) : Bf16::widen(bits);
}

std::uint16_t half_sum(Type type, std::uint16_t a, std::uint16_t b) {
  return type == Type::f16 || type == Type::f16x2 ? Single<Fp16, Add>{}(a, b) : Single<Bf16, Add>{}(a, b);
}

}  // namespace tilescope::gpu::emulator
