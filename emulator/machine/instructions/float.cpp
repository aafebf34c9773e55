// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic, fp32 and fp64. To the bit: add, sub, mul, fma, min, max, abs, neg, div.rn,
// rcp.rn, sqrt.rn. Not to the bit, but nearer to the exact value than the device: div.approx, div.full,
// rcp.approx, rsqrt.approx, sqrt.approx, ex2.approx, lg2.approx, sin.approx, cos.approx, tanh.approx. Results
// that are NaN are the canonical one.
#include <bit>
#include <cmath>
#include <limits>

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

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct MultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
/// A number before a NaN; -0 is less than 0.
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a < b ? b : a;
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return -a;
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalSquareRoot {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a)));
  }
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

/// An operation with what its modifiers add.
template <class Op, bool ftz>
struct Rounded {
  template <class... T>
  auto operator()(T... operands) const {
    return flush<ftz>(canonical(Op{}(flush<ftz>(operands)...)));
  }
};

/// Pairs of Handlers: of fp32, plain and .ftz, and of fp64.
struct Forms {
  std::size_t operands;
  Handler single, flushed, pair;
};
template <class Op>
constexpr Forms kUnary{2, &unary<Rounded<Op, false>, float>, &unary<Rounded<Op, true>, float>,
                       &unary<Rounded<Op, false>, double>};
template <class Op>
constexpr Forms kUnarySingle{2, &unary<Rounded<Op, false>, float>, &unary<Rounded<Op, true>, float>, nullptr};
template <class Op>
constexpr Forms kBinary{3, &binary<Rounded<Op, false>, float>, &binary<Rounded<Op, true>, float>,
                        &binary<Rounded<Op, false>, double>};
template <class Op>
constexpr Forms kTernary{4, &ternary<Rounded<Op, false>, float>, &ternary<Rounded<Op, true>, float>,
                         &ternary<Rounded<Op, false>, double>};

Execution pick(const Forms& forms, const Instruction& instruction) {
  plain_operands(instruction, forms.operands);
  const bool pair = only_type(instruction) == ptx::Type::f64;
  if (!pair && only_type(instruction) != ptx::Type::f32) unknown_form();
  const Handler handler = pair ? forms.pair : instruction.has("ftz") ? forms.flushed : forms.single;
  if (!handler) unknown_form();
  return {handler};
}

Outcome multiply_add(Warp& warp, const Instruction& instruction) {
  if (warp.active != ~0u) return ternary<Rounded<MultiplyAdd, false>, float>(warp, instruction);
  fma_all_lanes(warp.read<float>(instruction.operands[1]), warp.read<float>(instruction.operands[2]),
                warp.read<float>(instruction.operands[3]), warp.write<float>(instruction.operands[0]));
  return Outcome::next;
}

template <const Forms& forms>
Execution select(const Instruction& instruction) {
  only_modifiers(instruction, {"rn", "approx", "full", "ftz"});
  return pick(forms, instruction);
}

template <Arithmetic operation, const Forms& forms>
Execution select_either(const Instruction& instruction) {
  if (instruction.types.empty()) unknown_form();
  if (is_half(instruction.types.back())) return select_half(operation, instruction);
  if (!is_float(instruction.types.back())) return select_integer(operation, instruction);
  return select<forms>(instruction);
}

/// fma.rm: the greatest fp32 number that is not above a b + c. The product is exact in fp64; of the sum
/// there, what rounding took away tells on which side the exact one lies.
struct MultiplyAddDown {
  float operator()(float a, float b, float c) const {
    const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
    const double sum = product + addend, of_addend = sum - product;
    if (sum == 0) return std::signbit(product) || std::signbit(addend) ? -0.0f : 0.0f;  // x - x is -0
    const double lost = (product - (sum - of_addend)) + (addend - of_addend);
    const float nearest = static_cast<float>(sum);
    const bool above = nearest > sum || (nearest == sum && lost < 0);
    return above ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
  }
};

Execution select_multiply_add(const Instruction& instruction) {
  only_modifiers(instruction, {"rn", "rm", "ftz"});
  plain_operands(instruction, 4);
  const bool plain_single = only_type(instruction) == ptx::Type::f32 && !instruction.has("ftz");
  if (instruction.has("rm")) {
    if (!plain_single) unknown_form();
    return {&ternary<Rounded<MultiplyAddDown, false>, float>};
  }
  if (plain_single) return {&multiply_add};
  return pick(kTernary<MultiplyAdd>, instruction);
}

}  // namespace

void add_float_handlers(HandlerTable& table) {
  table.add("add", select_either<Arithmetic::add, kBinary<Add>>);
  table.add("sub", select_either<Arithmetic::subtract, kBinary<Subtract>>);
  table.add("mul", select_either<Arithmetic::multiply, kBinary<Multiply>>);
  table.add("div", select_either<Arithmetic::divide, kBinary<Divide>>);
  table.add("min", select_either<Arithmetic::minimum, kBinary<Minimum>>);
  table.add("max", select_either<Arithmetic::maximum, kBinary<Maximum>>);
  table.add("abs", select_either<Arithmetic::absolute, kUnary<Absolute>>);
  table.add("neg", select_either<Arithmetic::negate, kUnary<Negate>>);
  table.add("fma", select_multiply_add);
  table.add("rcp", select<kUnary<Reciprocal>>);
  table.add("sqrt", select<kUnary<SquareRoot>>);
  table.add("rsqrt", select<kUnary<ReciprocalSquareRoot>>);
  table.add("ex2", select<kUnarySingle<PowerOfTwo>>);
  table.add("lg2", select<kUnarySingle<Logarithm>>);
  table.add("sin", select<kUnarySingle<Sine>>);
  table.add("cos", select<kUnarySingle<Cosine>>);
  table.add("tanh", select<kUnarySingle<HyperbolicTangent>>);
}

}  // namespace tilescope::gpu::emulator
