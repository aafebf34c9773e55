// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic, fp32 and fp64. To the bit: add, sub, mul, fma, min, max, abs, neg, div,
// rcp and sqrt in every rounding. Not to the bit, but nearer to the exact value than the device: div.approx,
// div.full, rcp.approx, rsqrt.approx, sqrt.approx, ex2.approx, lg2.approx, sin.approx, cos.approx,
// tanh.approx. Results that are NaN are the canonical one.
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "emulator/machine/instructions/half.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
TILESCOPE_HASWELL_CLONES void fma_all_lanes(const float* a, const float* b, const float* c, float* result) {
  TILESCOPE_LANES_APART
  for (int lane = 0; lane < kLanes; ++lane) {
    const float sum = std::fma(a[lane], b[lane], c[lane]);
    result[lane] = sum == sum ? sum : std::bit_cast<float>(0x7fffffffu);
  }
}

namespace {

using ptx::Instruction;

float canonical(float value) { return value == value ? value : std::bit_cast<float>(0x7fffffffu); }
double canonical(double value) { return value; }

/// .ftz: subnormal operands and results become zeros with their sign.
template <bool ftz>
float flush(float value) {
  return ftz && std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
template <bool ftz>
double flush(double value) {
  return value;
}

using Add = std::plus<>;
using Subtract = std::minus<>;
using Multiply = std::multiplies<>;
using Divide = std::divides<>;
struct MultiplyAdd {
  auto operator()(auto a, auto b, auto c) const { return std::fma(a, b, c); }
};
/// .xorsign.abs: of magnitudes, with the product's sign.
template <class Op>
struct OfMagnitudes {
  float operator()(float a, float b) const {
    return std::copysign(Op{}(std::fabs(a), std::fabs(b)), std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f);
  }
};
struct Absolute {
  auto operator()(auto a) const { return std::fabs(a); }
};
using Negate = std::negate<>;
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct SquareRoot {
  auto operator()(auto a) const { return std::sqrt(a); }
};
struct ReciprocalSquareRoot {
  auto operator()(auto a) const { return static_cast<decltype(a)>(1.0 / std::sqrt(static_cast<double>(a))); }
};
struct PowerOfTwo {
  float operator()(float a) const { return std::exp2(a); }
};
struct Logarithm {
  float operator()(float a) const { return std::log2(a); }
};
struct Sine {
  float operator()(float a) const { return std::sin(a); }
};
struct Cosine {
  float operator()(float a) const { return std::cos(a); }
};
struct HyperbolicTangent {
  float operator()(float a) const { return std::tanh(a); }
};

/// An operation with what its modifiers add: .ftz, and .sat, which is to [0, 1] with NaN as 0.
template <class Op, bool ftz, bool saturates>
struct Rounded {
  template <class... T>
  auto operator()(T... operands) const {
    const auto result = flush<ftz>(canonical(Op{}(flush<ftz>(operands)...)));
    using Result = decltype(canonical(result));
    if constexpr (saturates) return result > 0 ? (result < 1 ? result : Result{1}) : Result{0};
    return result;
  }
};

template <class Op, class T, std::size_t operands>
constexpr Handler to_nearest() {
  if constexpr (operands == 1) return &unary<Op, T>;
  if constexpr (operands == 2) return &binary<Op, T>;
  if constexpr (operands == 3) return &ternary<Op, T>;
}

/// What .rz, .rm and .rp ask for; nothing where the nearest number is.
std::optional<int> direction_of(const Instruction& instruction) {
  if (instruction.has("rz")) return FE_TOWARDZERO;
  if (instruction.has("rm")) return FE_DOWNWARD;
  if (instruction.has("rp")) return FE_UPWARD;
  return std::nullopt;
}

/// .rz, .rm, .rp: the processor rounds so between two accesses that the compiler leaves where they are.
template <class Op, class T, std::size_t operands>
Outcome directed(Warp& warp, const Instruction& instruction) {
  const int mode = *direction_of(instruction);
  const T* in[operands];
  for (std::size_t i = 0; i < operands; ++i) in[i] = warp.read<T>(instruction.operands[i + 1]);
  T* const result = warp.write<T>(instruction.operands[0]);
  const int before = std::fegetround();
  std::fesetround(mode);
  for_lanes(warp.active, [&](int lane) {
    volatile T values[operands];
    for (std::size_t i = 0; i < operands; ++i) values[i] = in[i][lane];
    volatile T rounded{};
    if constexpr (operands == 1) rounded = Op{}(T(values[0]));
    if constexpr (operands == 2) rounded = Op{}(T(values[0]), T(values[1]));
    if constexpr (operands == 3) rounded = Op{}(T(values[0]), T(values[1]), T(values[2]));
    result[lane] = rounded;
  });
  std::fesetround(before);
  return Outcome::next;
}

template <class Op, class T, std::size_t operands, bool ftz, bool saturates>
Handler of_rounding(const Instruction& instruction) {
  using Whole = Rounded<Op, ftz, saturates>;
  return direction_of(instruction) ? &directed<Whole, T, operands> : to_nearest<Whole, T, operands>();
}

enum class Precision { single, both };

template <class Op, std::size_t operands, Precision precision = Precision::both>
Execution select(const Instruction& instruction) {
  only_modifiers(instruction, {"rn", "rz", "rm", "rp", "approx", "full", "ftz", "sat"});
  plain_operands(instruction, operands + 1);
  const bool ftz = instruction.has("ftz"), saturates = instruction.has("sat");
  const ptx::Type type = only_type(instruction);
  if constexpr (precision == Precision::both) {
    if (type == ptx::Type::f64 && saturates) unknown_form();
    if (type == ptx::Type::f64) return {of_rounding<Op, double, operands, false, false>(instruction)};
  }
  if (type != ptx::Type::f32) unknown_form();
  if (ftz && saturates) return {of_rounding<Op, float, operands, true, true>(instruction)};
  if (ftz) return {of_rounding<Op, float, operands, true, false>(instruction)};
  if (saturates) return {of_rounding<Op, float, operands, false, true>(instruction)};
  return {of_rounding<Op, float, operands, false, false>(instruction)};
}

/// Functions whose results are not to the bit are not rounded in directions either.
template <class Op>
Execution select_function(const Instruction& instruction) {
  if (!instruction.types.empty() && is_half(instruction.types.back()))
    return select_half_function(instruction);
  only_modifiers(instruction, {"approx", "ftz"});
  return select<Op, 1, Precision::single>(instruction);
}

template <Arithmetic operation, class Op, std::size_t operands>
Execution select_either(const Instruction& instruction) {
  if (instruction.types.empty()) unknown_form();
  if (is_half(instruction.types.back())) return select_half(operation, instruction);
  if (!is_float(instruction.types.back())) return select_integer(operation, instruction);
  return select<Op, operands>(instruction);
}
template <Arithmetic operation, bool greatest>
Execution select_extreme(const Instruction& instruction) {
  using Op = Extreme<greatest>;
  using KeepsNan = Extreme<greatest, true>;
  const bool keeps_nan = instruction.has("NaN"), of_magnitudes = instruction.has("xorsign");
  if ((!keeps_nan && !of_magnitudes) || instruction.types.empty() || is_half(instruction.types.back()))
    return select_either<operation, Op, 2>(instruction);
  only_modifiers(instruction, {"NaN", "ftz", "xorsign", "abs"});
  plain_operands(instruction, 3);
  if (only_type(instruction) != ptx::Type::f32) unknown_form();
  const auto flushing = [&]<class Chosen>(Chosen) -> Handler {
    return instruction.has("ftz") ? &binary<Rounded<Chosen, true, false>, float>
                                  : &binary<Rounded<Chosen, false, false>, float>;
  };
  if (!of_magnitudes) return {flushing(KeepsNan{})};
  return {keeps_nan ? flushing(OfMagnitudes<KeepsNan>{}) : flushing(OfMagnitudes<Op>{})};
}

Outcome multiply_add(Warp& warp, const Instruction& instruction) {
  if (warp.active != ~0u) return ternary<Rounded<MultiplyAdd, false, false>, float>(warp, instruction);
  fma_all_lanes(warp.read<float>(instruction.operands[1]), warp.read<float>(instruction.operands[2]),
                warp.read<float>(instruction.operands[3]), warp.write<float>(instruction.operands[0]));
  return Outcome::next;
}

Execution select_multiply_add(const Instruction& instruction) {
  if (!instruction.types.empty() && is_half(instruction.types.back()))
    return select_half_multiply_add(instruction);
  plain_operands(instruction, 4);
  if (instruction.opcode == "fma.rn.f32") return {&multiply_add};
  return select<MultiplyAdd, 3>(instruction);
}

/// copysign d, a, b: b with the sign of a
struct CopySign {
  auto operator()(auto a, auto b) const { return std::copysign(b, a); }
};

}  // namespace

void add_float_handlers(HandlerTable& table) {
  table.add("add", select_either<Arithmetic::add, Add, 2>);
  table.add("sub", select_either<Arithmetic::subtract, Subtract, 2>);
  table.add("mul", select_either<Arithmetic::multiply, Multiply, 2>);
  table.add("div", select_either<Arithmetic::divide, Divide, 2>);
  table.add("min", select_extreme<Arithmetic::minimum, false>);
  table.add("max", select_extreme<Arithmetic::maximum, true>);
  table.add("abs", select_either<Arithmetic::absolute, Absolute, 1>);
  table.add("neg", select_either<Arithmetic::negate, Negate, 1>);
  table.add("fma", select_multiply_add);
  table.add("mad.rn", select_multiply_add);
  table.add("copysign", select<CopySign, 2>);
  table.add("rcp", select<Reciprocal, 1>);
  table.add("sqrt", select<SquareRoot, 1>);
  table.add("rsqrt", select<ReciprocalSquareRoot, 1>);
  table.add("ex2", select_function<PowerOfTwo>);
  table.add("lg2", select_function<Logarithm>);
  table.add("sin", select_function<Sine>);
  table.add("cos", select_function<Cosine>);
  table.add("tanh", select_function<HyperbolicTangent>);
}

}  // namespace tilescope::gpu::emulator
