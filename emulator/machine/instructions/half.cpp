// SPDX-License-Identifier: Apache-2.0
// add, sub and mul of fp16 and bf16, single and in pairs: computed in fp32 and rounded again, which gives
// what one rounding gives (fp32 has more than twice the bits).
#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {
namespace {

struct Fp16 {
  static float widen(std::uint16_t bits) { return fp16_to_fp32(bits); }
  static std::uint16_t narrow(float value) { return fp32_to_fp16(value); }
};
struct Bf16 {
  static float widen(std::uint16_t bits) { return bf16_to_fp32(bits); }
  static std::uint16_t narrow(float value) { return fp32_to_bf16(value); }
};

struct Add {
  float operator()(float a, float b) const { return a + b; }
};
struct Subtract {
  float operator()(float a, float b) const { return a - b; }
};
struct Multiply {
  float operator()(float a, float b) const { return a * b; }
};

template <class Format, class Op>
struct Single {
  std::uint16_t operator()(std::uint16_t a, std::uint16_t b) const {
    return Format::narrow(Op{}(Format::widen(a), Format::widen(b)));
  }
};
template <class Format, class Op>
struct Pair {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const auto half = [&](int shift) {
      return std::uint32_t{Single<Format, Op>{}(static_cast<std::uint16_t>(a >> shift),
                                                static_cast<std::uint16_t>(b >> shift))};
    };
    return half(16) << 16 | half(0);
  }
};

template <class Op>
Execution of_format(ptx::Type type) {
  switch (type) {
    case ptx::Type::f16:
      return {&binary<Single<Fp16, Op>, std::uint16_t>};
    case ptx::Type::bf16:
      return {&binary<Single<Bf16, Op>, std::uint16_t>};
    case ptx::Type::f16x2:
      return {&binary<Pair<Fp16, Op>, std::uint32_t>};
    case ptx::Type::bf16x2:
      return {&binary<Pair<Bf16, Op>, std::uint32_t>};
    default:
      unknown_form();
  }
}

}  // namespace

Execution select_half(Arithmetic operation, const ptx::Instruction& instruction) {
  only_modifiers(instruction, {"rn"});
  plain_operands(instruction, 3);
  switch (operation) {
    case Arithmetic::add:
      return of_format<Add>(only_type(instruction));
    case Arithmetic::subtract:
      return of_format<Subtract>(only_type(instruction));
    case Arithmetic::multiply:
      return of_format<Multiply>(only_type(instruction));
    default:
      unknown_form();
  }
}

}  // namespace tilescope::gpu::emulator
