// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set (see HWY_DISABLED_TARGETS in CMakeLists.txt); the best one that the
// machine has is chosen at run time.
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

// Rows of the register block. Two vectors of columns and this many rows of accumulators leave registers for
// b and the broadcast of a: 16 + 3 of AVX-512's 32, 12 + 3 of the 16 of narrower machines. Eight chains of
// two hide the latency of a multiply-add (4 cycles, 2 a cycle).
#if HWY_TARGET <= HWY_AVX3
constexpr int kBlockRows = 8;
#else
constexpr int kBlockRows = 6;
#endif

/// c (kRows, kVectors vectors) = or += a * b, with all of c in registers.
template <int kRows, int kVectors, bool kRowsAdjacent>
HWY_INLINE void block_matmul(const float* HWY_RESTRICT a, std::ptrdiff_t stride, const float* HWY_RESTRICT b,
                             std::ptrdiff_t b_stride, float* HWY_RESTRICT c, std::ptrdiff_t c_stride,
                             int depth, bool accumulate) {
  const Floats d;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int k = 0; k < depth; ++k) {
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector broadcast = hn::Set(d, kRowsAdjacent ? a[r] : a[r * stride]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(broadcast, row[v], sums[r][v]);
    }
    a += kRowsAdjacent ? stride : 1;
    b += b_stride;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * c_stride + v * lanes);
  }
}

template <int kRows, int kVectors, bool kRowsAdjacent>
void ragged_block_matmul(int rows, const float* a, std::ptrdiff_t stride, const float* b,
                         std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride, int depth,
                         bool accumulate) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return ragged_block_matmul<kRows - 1, kVectors, kRowsAdjacent>(rows, a, stride, b, b_stride, c,
                                                                     c_stride, depth, accumulate);
    }
  }
  block_matmul<kRows, kVectors, kRowsAdjacent>(a, stride, b, b_stride, c, c_stride, depth, accumulate);
}

template <int kVectors, bool kRowsAdjacent>
void panel_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int depth, bool accumulate) {
  const std::ptrdiff_t stride = kRowsAdjacent ? a.depth_stride : a.row_stride;
  int row = 0;
  for (; row + kBlockRows <= rows; row += kBlockRows) {
    block_matmul<kBlockRows, kVectors, kRowsAdjacent>(a.data + row * a.row_stride, stride, b, b_stride,
                                                      c + row * c_stride, c_stride, depth, accumulate);
  }
  if (row < rows) {
    ragged_block_matmul<kBlockRows - 1, kVectors, kRowsAdjacent>(rows - row, a.data + row * a.row_stride,
                                                                 stride, b, b_stride, c + row * c_stride,
                                                                 c_stride, depth, accumulate);
  }
}

template <bool kRowsAdjacent>
void matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride,
            int rows, int cols, int depth, bool accumulate) {
  const int lanes = static_cast<int>(hn::Lanes(Floats()));
  int col = 0;
  for (; col + lanes < cols; col += 2 * lanes) {
    panel_matmul<2, kRowsAdjacent>(a, b + col, b_stride, c + col, c_stride, rows, depth, accumulate);
  }
  if (col < cols) {
    panel_matmul<1, kRowsAdjacent>(a, b + col, b_stride, c + col, c_stride, rows, depth, accumulate);
  }
}

void TileMatmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  const bool add = accumulate == Accumulate::yes;
  if (a.row_stride == 1) {
    matmul<true>(a, b, b_stride, c, c_stride, rows, cols, depth, add);
  } else {
    matmul<false>(a, b, b_stride, c, c_stride, rows, cols, depth, add);
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr int kTransposeSide = 1;
HWY_INLINE void transpose_block(const float* in, std::ptrdiff_t, float factor, float* out, std::ptrdiff_t) {
  *out = factor * *in;
}
#else
constexpr int kTransposeSide = 4;
/// Four rows of four columns to four columns of four rows.
HWY_INLINE void transpose_block(const float* HWY_RESTRICT in, std::ptrdiff_t in_stride, float factor,
                                float* HWY_RESTRICT out, std::ptrdiff_t out_stride) {
  const hn::FixedTag<float, 4> d;
  const auto f = hn::Set(d, factor);
  const auto row0 = hn::Mul(f, hn::LoadU(d, in)), row1 = hn::Mul(f, hn::LoadU(d, in + in_stride));
  const auto row2 = hn::Mul(f, hn::LoadU(d, in + 2 * in_stride));
  const auto row3 = hn::Mul(f, hn::LoadU(d, in + 3 * in_stride));
  const auto low02 = hn::InterleaveLower(d, row0, row2), high02 = hn::InterleaveUpper(d, row0, row2);
  const auto low13 = hn::InterleaveLower(d, row1, row3), high13 = hn::InterleaveUpper(d, row1, row3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, out);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, out + out_stride);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, out + 2 * out_stride);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, out + 3 * out_stride);
}
#endif

void TransposeTile(const float* in, std::ptrdiff_t in_stride, int rows, int cols, float factor, float* out,
                   std::ptrdiff_t out_stride) {
  constexpr int side = kTransposeSide;
  const int whole_rows = rows / side * side, whole_cols = cols / side * side;
  for (int row = 0; row < whole_rows; row += side) {
    for (int col = 0; col < whole_cols; col += side) {
      transpose_block(in + row * in_stride + col, in_stride, factor, out + col * out_stride + row,
                      out_stride);
    }
  }
  for (int col = 0; col < cols; ++col) {
    float* line = out + col * out_stride;
    const int done = col < whole_cols ? whole_rows : 0;
    for (int row = done; row < rows; ++row) line[row] = factor * in[row * in_stride + col];
    for (int row = rows; row < padded(rows); ++row) line[row] = 0.0f;
  }
}

/// 2^x for x <= 127. With x = n + f, |f| <= 1/2: a Taylor polynomial of degree 7 (truncated below 1e-8 of the
/// result) gives 2^f, and n is added to its exponent. Below -127, where that wraps, the result is 0. There is
/// no minimum or maximum in it: what those make of a NaN differs between machines.
HWY_INLINE Vector exp2_vector(Vector x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Adding 1.5 * 2^23 rounds x to an integer, which then lies in the low bits of the sum.
  const auto round = hn::Set(d, 12582912.0f);
  const auto shifted = hn::Add(x, round);
  const auto f = hn::Sub(x, hn::Sub(shifted, round));
  auto y = hn::Set(d, 1.52527338e-5f);
  y = hn::MulAdd(y, f, hn::Set(d, 1.54035304e-4f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.33335581e-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 9.61812911e-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 5.55041087e-2f));
  y = hn::MulAdd(y, f, hn::Set(d, 2.40226507e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 6.93147181e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const auto power = hn::BitCast(d, hn::Add(exponent, hn::Set(di, 0x3F800000)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -127.0f)), hn::Mul(y, power));
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

void OnlineSoftmax(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                   float* row_max, float* row_sum, float* rescale) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int query = 0; query < queries; query += lanes) {
    float* column = scores + query;
    const auto old_max = hn::LoadU(d, row_max + query);
    auto max0 = old_max, max1 = old_max;
    int key = 0;
    for (; key + 1 < keys; key += 2) {
      max0 = hn::Max(max0, hn::LoadU(d, column + key * stride));
      max1 = hn::Max(max1, hn::LoadU(d, column + (key + 1) * stride));
    }
    if (key < keys) max0 = hn::Max(max0, hn::LoadU(d, column + key * stride));
    const auto new_max = hn::Max(max0, max1);
    const Exponent e = exponent_of(scale, new_max);
    auto sum = hn::Zero(d);
    for (key = 0; key < keys; ++key) {
      const auto p = exponentiate(e, hn::LoadU(d, column + key * stride));
      hn::StoreU(p, d, column + key * stride);
      sum = hn::Add(sum, p);
    }
    const auto seen = hn::Gt(new_max, hn::Set(d, -std::numeric_limits<float>::infinity()));
    const auto shift = hn::IfThenElseZero(seen, hn::Sub(old_max, new_max));
    const auto alpha = exp2_vector(hn::Mul(shift, e.scale));
    hn::StoreU(new_max, d, row_max + query);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, row_sum + query), alpha, sum), d, row_sum + query);
    hn::StoreU(alpha, d, rescale + query);
  }
}

float RowMaximum(const float* values, std::int64_t count, float start) {
  const Floats d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto maximum = hn::Set(d, start);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) maximum = hn::Max(maximum, hn::LoadU(d, values + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, maximum));
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
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

void ScoresGradient(const float* probs, float* dprobs, std::ptrdiff_t stride, int rows, int cols,
                    const float* delta, Queries queries) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int row = 0; row < rows; ++row) {
    const float* p = probs + row * stride;
    float* dp = dprobs + row * stride;
    for (int col = 0; col < cols; col += lanes) {
      const auto shift = queries == Queries::columns ? hn::LoadU(d, delta + col) : hn::Set(d, delta[row]);
      hn::StoreU(hn::Mul(hn::LoadU(d, p + col), hn::Sub(hn::LoadU(d, dp + col), shift)), d, dp + col);
    }
  }
}

void ScaleValues(float* values, float factor, std::int64_t count) {
  const auto f = hn::Set(Floats(), factor);
  for_each_vector(values, count, [&](Vector value, std::int64_t) HWY_ATTR { return hn::Mul(value, f); });
}

void MultiplyValues(float* values, const float* factors, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factors[i];
}

void AddValues(float* sums, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

void BlendValues(float a, float* out, float b, const float* in, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a * out[i] + b * in[i];
}

float DotProduct(const float* a, const float* b, std::int64_t count) {
  const Floats d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  float result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) result += a[i] * b[i];
  return result;
}

void Exp2Values(float* values, std::int64_t count) {
  for_each_vector(values, count, [](Vector x, std::int64_t) HWY_ATTR { return exp2_vector(x); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(TileMatmul);
HWY_EXPORT(TransposeTile);
HWY_EXPORT(OnlineSoftmax);
HWY_EXPORT(RowMaximum);
HWY_EXPORT(Exp2Row);
HWY_EXPORT(ProbsFromLse);
HWY_EXPORT(ScoresGradient);
HWY_EXPORT(ScaleValues);
HWY_EXPORT(MultiplyValues);
HWY_EXPORT(AddValues);
HWY_EXPORT(BlendValues);
HWY_EXPORT(DotProduct);
HWY_EXPORT(Exp2Values);

void tile_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                 std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  HWY_DYNAMIC_DISPATCH(TileMatmul)(a, b, b_stride, c, c_stride, rows, cols, depth, accumulate);
}
void transpose_tile(const float* in, std::ptrdiff_t in_stride, int rows, int cols, float factor, float* out,
                    std::ptrdiff_t out_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeTile)(in, in_stride, rows, cols, factor, out, out_stride);
}
void online_softmax(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                    float* row_max, float* row_sum, float* rescale) {
  HWY_DYNAMIC_DISPATCH(OnlineSoftmax)(scores, stride, keys, queries, scale, row_max, row_sum, rescale);
}
float row_maximum(const float* values, std::int64_t count, float start) {
  return HWY_DYNAMIC_DISPATCH(RowMaximum)(values, count, start);
}
float exp2_row(float* values, std::int64_t count, SoftmaxScale scale, float row_max) {
  return HWY_DYNAMIC_DISPATCH(Exp2Row)(values, count, scale, row_max);
}
void probs_from_lse(float* scores, std::ptrdiff_t stride, int rows, int cols, float scale_log2,
                    const float* lse_log2, Queries queries) {
  HWY_DYNAMIC_DISPATCH(ProbsFromLse)(scores, stride, rows, cols, scale_log2, lse_log2, queries);
}
void scores_gradient(const float* probs, float* dprobs, std::ptrdiff_t stride, int rows, int cols,
                     const float* delta, Queries queries) {
  HWY_DYNAMIC_DISPATCH(ScoresGradient)(probs, dprobs, stride, rows, cols, delta, queries);
}
void scale_values(float* values, float factor, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ScaleValues)(values, factor, count);
}
void multiply_values(float* values, const float* factors, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(MultiplyValues)(values, factors, count);
}
void add_values(float* sums, const float* values, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddValues)(sums, values, count);
}
void blend_values(float a, float* out, float b, const float* in, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(BlendValues)(a, out, b, in, n);
}
float dot_product(const float* a, const float* b, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(DotProduct)(a, b, count);
}
void exp2_values(float* values, std::int64_t count) { HWY_DYNAMIC_DISPATCH(Exp2Values)(values, count); }

}  // namespace tilescope
#endif  // HWY_ONCE
