// SPDX-License-Identifier: Apache-2.0
// Where 2^x is in it. Compiled once for each instruction set (see HWY_DISABLED_TARGETS in CMakeLists.txt);
// the best one that the machine has is chosen at run time.
#include "cpu_ref/primitives/tile_math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/primitives/tile_math.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kTileAlign>;
using Vector = hn::Vec<Floats>;

/// Of 2^f for |f| <= 1/2, highest first: the polynomial of degree 6 that is exact at 0 and whose largest
/// error, 2.6e-9 of the result, is the least.
constexpr float kExp2Polynomial[] = {
    1.55946782e-4f, 1.34066439e-3f, 9.61769297e-3f, 5.55031055e-2f, 2.40226528e-1f, 6.93147215e-1f, 1.0f};

/// Each x becomes 2^x, x <= 127. With x = n + f, |f| <= 1/2: a polynomial gives 2^f, and n is added to its
/// exponent. Below -127, where that wraps, the result is 0. There is no minimum or maximum in it: what those
/// make of a NaN differs between machines. Several at once, since each is a chain of steps that wait for each
/// other.
template <int kCount>
HWY_INLINE void exp2_vectors(Vector (&x)[kCount]) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Adding 1.5 * 2^23 rounds x to an integer, which then lies in the low bits of the sum.
  const auto round = hn::Set(d, 12582912.0f);
  Vector shifted[kCount], f[kCount], y[kCount];
  for (int i = 0; i < kCount; ++i) shifted[i] = hn::Add(x[i], round);
  for (int i = 0; i < kCount; ++i) f[i] = hn::Sub(x[i], hn::Sub(shifted[i], round));
  for (int i = 0; i < kCount; ++i) y[i] = hn::Set(d, kExp2Polynomial[0]);
  for (int next = 1; next < 7; ++next) {
    const auto coefficient = hn::Set(d, kExp2Polynomial[next]);
    for (int i = 0; i < kCount; ++i) y[i] = hn::MulAdd(y[i], f[i], coefficient);
  }
  for (int i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted[i]));
    const auto power = hn::BitCast(d, hn::Add(exponent, hn::Set(di, 0x3F800000)));
    x[i] = hn::IfThenZeroElse(hn::Lt(x[i], hn::Set(d, -127.0f)), hn::Mul(y[i], power));
  }
}

HWY_INLINE Vector exp2_vector(Vector x) {
  Vector one[] = {x};
  exp2_vectors(one);
  return one[0];
}

/// exp2((s - m) * c + offset) as one multiply-add of s - before: the GPU kernels' fma(s, c, -m * c) while
/// m * c is exact to a small fraction, and fma(s - m, c, 0) where it is not, so that any finite scale works.
struct Exponent {
  Vector before, after, scale;
};

HWY_INLINE Exponent exponent_of(SoftmaxScale scale, Vector row_max) {
  const Floats d;
  const auto c = hn::Set(d, scale.log2);
  const auto offset = hn::Set(d, scale.log2_offset);
  const auto no_key = hn::Eq(row_max, hn::Set(d, -std::numeric_limits<float>::infinity()));
  const auto m = hn::IfThenZeroElse(no_key, row_max);  // all scores are -inf: any finite m gives P = 0
  const auto scaled = hn::Mul(m, c);
  const auto exact = hn::Lt(hn::Abs(scaled), hn::Set(d, 65536.0f));
  return {hn::IfThenZeroElse(exact, m), hn::IfThenElse(exact, hn::Sub(offset, scaled), offset), c};
}

HWY_INLINE Vector exponentiate(const Exponent& e, Vector s) {
  return exp2_vector(hn::MulAdd(hn::Sub(s, e.before), e.scale, e.after));
}

/// Where P stays: where its scores were.
struct InPlace {
  float* scores;
  std::ptrdiff_t stride;

  template <int kCount>
  HWY_INLINE void store(const Vector (&p)[kCount], int key, int query) const {
    for (int i = 0; i < kCount; ++i) hn::StoreU(p[i], Floats(), scores + (key + i) * stride + query);
  }
};

/// Two rows of P, rounded to bf16, in the halves of a word.
HWY_INLINE Vector pair_of(Vector first, Vector second) {
#if HWY_TARGET <= HWY_AVX3
  const __m512i swap = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                        22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i one_behind_the_other;  // AVX-512 BF16, which Highway of Debian 12 does not know
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(one_behind_the_other) : "v"(second.raw), "v"(first.raw));
  return Vector{_mm512_castsi512_ps(_mm512_permutexvar_epi16(swap, one_behind_the_other))};
#else
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const auto rounded = [&](Vector value)
                           HWY_ATTR {  // the upper half is the nearest bf16 number, ties to even
                             const auto bits = hn::BitCast(du, value);
                             const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
                             return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
                           };
  const auto above = hn::And(rounded(second), hn::Set(du, 0xFFFF0000u));
  return hn::BitCast(d, hn::Or(above, hn::ShiftRight<16>(rounded(first))));
#endif
}

/// Or in words (bf16_matmul.hpp). The keys before an odd last one come by twos.
struct InPairs {
  float* words;
  std::ptrdiff_t stride;

  template <int kCount>
  HWY_INLINE void store(const Vector (&p)[kCount], int key, int query) const {
    const Floats d;
    for (int i = 0; i < kCount; i += 2) {
      const auto second = i + 1 < kCount ? p[i + 1] : hn::Zero(d);
      hn::StoreU(pair_of(p[i], second), d, words + (key + i) / 2 * stride + query);
    }
  }
};

constexpr int kChains = 4;  // of exponentials and maxima that do not wait for each other

/// P of a vector of queries and kCount keys. @return sum + those, in order
template <int kCount, typename Place>
HWY_INLINE Vector exponentiate_keys(const Exponent& e, const float* column, std::ptrdiff_t stride, int key,
                                    int query, const Place& place, Vector sum) {
  Vector p[kCount];
  for (int i = 0; i < kCount; ++i) {
    p[i] = hn::MulAdd(hn::LoadU(Floats(), column + (key + i) * stride), e.scale, e.after);
  }
  exp2_vectors(p);
  place.store(p, key, query);
  for (int i = 0; i < kCount; ++i) sum = hn::Add(sum, p[i]);
  return sum;
}

HWY_INLINE Vector column_maximum(const float* column, std::ptrdiff_t stride, int keys, Vector start) {
  const Floats d;
  Vector most[kChains] = {start, start, start, start};
  int key = 0;
  for (; key + kChains <= keys; key += kChains) {
    for (int i = 0; i < kChains; ++i) most[i] = hn::Max(most[i], hn::LoadU(d, column + (key + i) * stride));
  }
  for (; key < keys; ++key) most[0] = hn::Max(most[0], hn::LoadU(d, column + key * stride));
  return hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
}

template <typename Place>
void softmax_columns(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                     float* row_max, float* row_sum, float* rescale, const Place& place) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int query = 0; query < queries; query += lanes) {
    float* column = scores + query;
    const auto old_max = hn::LoadU(d, row_max + query);
    const auto new_max = column_maximum(column, stride, keys, old_max);
    const Exponent e = exponent_of(scale, new_max);
    int key = 0;
    if (!hn::AllTrue(d, hn::Eq(e.before, hn::Zero(d)))) {  // seldom
      for (; key < keys; ++key) {
        hn::StoreU(hn::Sub(hn::LoadU(d, column + key * stride), e.before), d, column + key * stride);
      }
    }
    auto sum = hn::Zero(d);
    for (key = 0; key + kChains <= keys; key += kChains) {
      sum = exponentiate_keys<kChains>(e, column, stride, key, query, place, sum);
    }
    for (; key + 1 < keys; key += 2) sum = exponentiate_keys<2>(e, column, stride, key, query, place, sum);
    if (key < keys) sum = exponentiate_keys<1>(e, column, stride, key, query, place, sum);
    const auto seen = hn::Gt(new_max, hn::Set(d, -std::numeric_limits<float>::infinity()));
    const auto shift = hn::IfThenElseZero(seen, hn::Sub(old_max, new_max));
    const auto alpha = exp2_vector(hn::Mul(shift, e.scale));
    hn::StoreU(new_max, d, row_max + query);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, row_sum + query), alpha, sum), d, row_sum + query);
    hn::StoreU(alpha, d, rescale + query);
  }
}

void OnlineSoftmax(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                   float* row_max, float* row_sum, float* rescale) {
  softmax_columns(scores, stride, keys, queries, scale, row_max, row_sum, rescale, InPlace{scores, stride});
}

void OnlineSoftmaxInPairs(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                          float* row_max, float* row_sum, float* rescale, float* words,
                          std::ptrdiff_t words_stride) {
  softmax_columns(scores, stride, keys, queries, scale, row_max, row_sum, rescale,
                  InPairs{words, words_stride});
}

/// Calls step(vector) on values[0, count) in place, a partial last vector through a buffer.
template <typename Step>
HWY_INLINE void for_each_vector(float* values, std::int64_t count, Step&& step) {
  const Floats d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(step(hn::LoadU(d, values + i), i), d, values + i);
  if (i == count) return;
  float tail[kTileAlign];
  hn::StoreU(hn::Zero(d), d, tail);
  for (std::int64_t j = i; j < count; ++j) tail[j - i] = values[j];
  hn::StoreU(step(hn::LoadU(d, tail), i), d, tail);
  for (std::int64_t j = i; j < count; ++j) values[j] = tail[j - i];
}

float Exp2Row(float* values, std::int64_t count, SoftmaxScale scale, float row_max) {
  const Floats d;
  const Exponent e = exponent_of(scale, hn::Set(d, row_max));
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for_each_vector(values, count, [&](Vector value, std::int64_t i) HWY_ATTR {
    const auto p = exponentiate(e, value);
    const auto kept = hn::FirstN(d, static_cast<std::size_t>(count - i < lanes ? count - i : lanes));
    sum = hn::Add(sum, hn::IfThenElseZero(kept, p));
    return p;
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void ProbsFromLse(float* scores, std::ptrdiff_t stride, int rows, int cols, float scale_log2,
                  const float* lse_log2, Queries queries) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto c = hn::Set(d, scale_log2);
  for (int row = 0; row < rows; ++row) {
    float* line = scores + row * stride;
    for (int col = 0; col < cols; col += lanes) {
      const auto lse = queries == Queries::columns ? hn::LoadU(d, lse_log2 + col) : hn::Set(d, lse_log2[row]);
      const auto x = hn::MulSub(hn::LoadU(d, line + col), c, lse);
      // Only the rounding of a huge lse makes x positive.
      hn::StoreU(exp2_vector(hn::IfThenZeroElse(hn::Gt(x, hn::Zero(d)), x)), d, line + col);
    }
  }
}

void Exp2Values(float* values, std::int64_t count) {
  for_each_vector(values, count, [](Vector x, std::int64_t) HWY_ATTR { return exp2_vector(x); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(OnlineSoftmax);
HWY_EXPORT(OnlineSoftmaxInPairs);
HWY_EXPORT(Exp2Row);
HWY_EXPORT(ProbsFromLse);
HWY_EXPORT(Exp2Values);

void online_softmax(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                    float* row_max, float* row_sum, float* rescale) {
  HWY_DYNAMIC_DISPATCH(OnlineSoftmax)(scores, stride, keys, queries, scale, row_max, row_sum, rescale);
}
void online_softmax_in_pairs(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                             float* row_max, float* row_sum, float* rescale, float* words,
                             std::ptrdiff_t words_stride) {
  HWY_DYNAMIC_DISPATCH(OnlineSoftmaxInPairs)
  (scores, stride, keys, queries, scale, row_max, row_sum, rescale, words, words_stride);
}
float exp2_row(float* values, std::int64_t count, SoftmaxScale scale, float row_max) {
  return HWY_DYNAMIC_DISPATCH(Exp2Row)(values, count, scale, row_max);
}
void probs_from_lse(float* scores, std::ptrdiff_t stride, int rows, int cols, float scale_log2,
                    const float* lse_log2, Queries queries) {
  HWY_DYNAMIC_DISPATCH(ProbsFromLse)(scores, stride, rows, cols, scale_log2, lse_log2, queries);
}
void exp2_values(float* values, std::int64_t count) { HWY_DYNAMIC_DISPATCH(Exp2Values)(values, count); }

}  // namespace tilescope
#endif  // HWY_ONCE
