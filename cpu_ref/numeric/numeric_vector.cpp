// SPDX-License-Identifier: Apache-2.0
// widen, narrow and round_to, vectorised: compiled once for each instruction set, chosen at run time, with
// the bits of the scalar definitions in numeric.cpp on all of them.
#include <cstring>

#include "cpu_ref/numeric/float_format.hpp"
#include "cpu_ref/numeric/numeric.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/numeric/numeric_vector.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxLanes = 16;
using Floats = hn::CappedTag<float, kMaxLanes>;
using Integers = hn::RebindToSigned<Floats>;
using Vector = hn::Vec<Floats>;
using Bits = hn::Vec<Integers>;

/// Bit patterns of the nearest values of `format`, ties to even.
template <FloatFormat format>
HWY_INLINE Bits encode(Vector value) {
  const Floats df;
  const Integers d;
  constexpr int shift = 23 - format.mantissa_bits;
  constexpr int rebias = (127 - format.bias()) << 23;
  const auto bits = hn::BitCast(d, value);
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFF));
  const auto sign = hn::And(hn::ShiftRight<31 - format.exponent_bits - format.mantissa_bits>(bits),
                            hn::Set(d, static_cast<int>(format.sign_bit())));
  const auto odd = hn::And(hn::ShiftRight<shift>(magnitude), hn::Set(d, 1));
  constexpr int half = 1 << (shift - 1);
  auto result = hn::ShiftRight<shift>(hn::Add(magnitude, hn::Add(odd, hn::Set(d, half - 1 - rebias))));
  if constexpr (rebias != 0) {
    // Subnormal in the target: a sum with the power of two whose last place is the target's smallest number
    // is rounded to a multiple of that number, and its low bits count the multiples.
    const auto power = hn::Set(d, (127 + 24 - format.bias() - format.mantissa_bits) << 23);
    const auto rounded = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, power));
    result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, rebias + (1 << 23))),
                            hn::Sub(hn::BitCast(d, rounded), power), result);
  }
  result = hn::IfThenElse(hn::Gt(result, hn::Set(d, static_cast<int>(format.max_finite))),
                          hn::Set(d, static_cast<int>(format.overflow())), result);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000)), hn::Set(d, static_cast<int>(format.nan)),
                          result);
  return hn::Or(result, sign);
}

/// The values of bit patterns of `format`.
template <FloatFormat format>
HWY_INLINE Vector decode(Bits bits) {
  const Floats df;
  const Integers d;
  constexpr int shift = 23 - format.mantissa_bits;
  constexpr int top = (1 << format.exponent_bits) - 1;
  const auto magnitude = hn::And(bits, hn::Set(d, static_cast<int>(format.sign_bit()) - 1));
  const auto sign = hn::ShiftLeft<31 - format.exponent_bits - format.mantissa_bits>(hn::Xor(bits, magnitude));
  // Mantissa and exponent in their places; the product sets the bias right, for subnormals too.
  auto value = hn::BitCast(d, hn::Mul(hn::BitCast(df, hn::ShiftLeft<shift>(magnitude)),
                                      hn::BitCast(df, hn::Set(d, (254 - format.bias()) << 23))));
  if constexpr (format.has_infinity) {
    const auto infinity = hn::Set(d, top << format.mantissa_bits);
    value = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::Set(d, 0x7F800000), value);
    value = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(d, 0x7FC00000), value);
  } else {
    value = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, static_cast<int>(format.nan))),
                           hn::Set(d, 0x7FC00000), value);
  }
  return hn::BitCast(df, hn::Or(value, sign));
}

/// bf16 is the upper half of fp32.
template <>
HWY_INLINE Vector decode<kBf16>(Bits bits) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
}

/// The values of encode's results, without the way through narrow bits where there is a shorter one.
template <FloatFormat format>
HWY_INLINE Vector rounded(Vector value) {
#if HWY_TARGET <= HWY_AVX2
  if constexpr (format == kFp16) {  // F16C
    return hn::PromoteTo(Floats(), hn::DemoteTo(hn::Rebind<hwy::float16_t, Floats>(), value));
  }
#endif
  return decode<format>(encode<format>(value));
}

/// Calls convert(source, destination) for vectors of elements; the last, partial one goes through buffers.
template <typename In, typename Out, typename Convert>
HWY_INLINE void for_each_vector(const In* source, Out* destination, std::int64_t count, Convert&& convert) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) convert(source + i, destination + i);
  if (i >= count) return;
  In from[kMaxLanes] = {};
  Out to[kMaxLanes];
  std::memcpy(from, source + i, static_cast<std::size_t>(count - i) * sizeof(In));
  convert(from, to);
  std::memcpy(destination + i, to, static_cast<std::size_t>(count - i) * sizeof(Out));
}

/// decode's results, of the bit patterns at `from`.
template <FloatFormat format, typename Element>
HWY_INLINE Vector load_decoded(const Element* from) {
#if HWY_TARGET <= HWY_AVX2
  if constexpr (format == kFp16) {  // F16C, which keeps what a NaN carries
    const Floats df;
    const hn::Rebind<hwy::float16_t, Floats> half;
    const auto value = hn::PromoteTo(df, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
    const auto nan = hn::CopySign(hn::BitCast(df, hn::Set(Integers(), 0x7FC00000)), value);
    return hn::IfThenElse(hn::IsNaN(value), nan, value);
  }
#endif
  return decode<format>(hn::PromoteTo(Integers(), hn::LoadU(hn::Rebind<Element, Floats>(), from)));
}

template <FloatFormat format, typename Element>
void widen_as(const Element* source, float* destination, std::int64_t count) {
  for_each_vector(source, destination, count, [](const Element* from, float* to) HWY_ATTR {
    hn::StoreU(load_decoded<format>(from), Floats(), to);
  });
}

template <FloatFormat format, typename Element>
void narrow_as(const float* source, Element* destination, std::int64_t count) {
  for_each_vector(source, destination, count, [](const float* from, Element* to) HWY_ATTR {
    const hn::Rebind<Element, Floats> narrow;
    hn::StoreU(hn::DemoteTo(narrow, encode<format>(hn::LoadU(Floats(), from))), narrow, to);
  });
}

template <FloatFormat format>
void round_as(float* values, std::int64_t count) {
  for_each_vector(values, values, count, [](const float* from, float* to) HWY_ATTR {
    hn::StoreU(rounded<format>(hn::LoadU(Floats(), from)), Floats(), to);
  });
}

void Widen(ElementType type, const void* source, float* destination, std::int64_t count) {
  switch (type) {
    case ElementType::fp32:
      std::memcpy(destination, source, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case ElementType::fp16:
      widen_as<kFp16>(static_cast<const std::uint16_t*>(source), destination, count);
      break;
    case ElementType::bf16:
      widen_as<kBf16>(static_cast<const std::uint16_t*>(source), destination, count);
      break;
    case ElementType::fp8e4m3:
      widen_as<kFp8e4m3>(static_cast<const std::uint8_t*>(source), destination, count);
      break;
    case ElementType::fp8e5m2:
      widen_as<kFp8e5m2>(static_cast<const std::uint8_t*>(source), destination, count);
      break;
  }
}

void Narrow(ElementType type, const float* source, void* destination, std::int64_t count) {
  switch (type) {
    case ElementType::fp32:
      std::memcpy(destination, source, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case ElementType::fp16:
      narrow_as<kFp16>(source, static_cast<std::uint16_t*>(destination), count);
      break;
    case ElementType::bf16:
      narrow_as<kBf16>(source, static_cast<std::uint16_t*>(destination), count);
      break;
    case ElementType::fp8e4m3:
      narrow_as<kFp8e4m3>(source, static_cast<std::uint8_t*>(destination), count);
      break;
    case ElementType::fp8e5m2:
      narrow_as<kFp8e5m2>(source, static_cast<std::uint8_t*>(destination), count);
      break;
  }
}

void RoundTo(ElementType type, float* values, std::int64_t count) {
  switch (type) {
    case ElementType::fp32:
      break;
    case ElementType::fp16:
      round_as<kFp16>(values, count);
      break;
    case ElementType::bf16:
      round_as<kBf16>(values, count);
      break;
    case ElementType::fp8e4m3:
      round_as<kFp8e4m3>(values, count);
      break;
    case ElementType::fp8e5m2:
      round_as<kFp8e5m2>(values, count);
      break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(RoundTo);

void widen(ElementType type, const void* source, float* destination, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(type, source, destination, count);
}
void narrow(ElementType type, const float* source, void* destination, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(Narrow)(type, source, destination, count);
}
void round_to(ElementType type, float* values, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(RoundTo)(type, values, count);
}

}  // namespace tilescope
#endif  // HWY_ONCE
