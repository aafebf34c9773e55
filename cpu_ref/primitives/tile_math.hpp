// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one tile, vectorised for the machine it runs on: online softmax, the pointwise part of
// the backward pass, and what products (fp32_matmul.hpp and its neighbours) take. All tiles are fp32,
// row-major, and padded: a row of `cols` elements may be read and written up to padded(cols). Strides count
// elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilescope {

/// Columns that a padded tile row holds: whole vectors of any machine.
inline constexpr int kTileAlign = 16;
constexpr int padded(int cols) { return (cols + kTileAlign - 1) / kTileAlign * kTileAlign; }

/// The left operand of a product: element (r, k) is data[r * row_stride + k * depth_stride], and one of the
/// two strides is 1. It is read element by element, so that it needs no padding.
struct LeftOperand {
  const float* data;
  std::ptrdiff_t row_stride;
  std::ptrdiff_t depth_stride;

  LeftOperand from(int row, int depth = 0) const {
    return {data + row * row_stride + depth * depth_stride, row_stride, depth_stride};
  }
};

enum class Accumulate : bool { no, yes };

/// Where the queries of a score tile, and so their maxima and sums, lie: across its columns or down its rows.
enum class Queries : std::uint8_t { columns, rows };

/// exp2((s - m) * log2 + log2_offset) is P, with s and m unscaled.
struct SoftmaxScale {
  float log2 = 1.0f;         // |softmax_scale| * log2(e), positive
  float log2_offset = 0.0f;  // fp8: P is kept 2^log2_offset times as large, to use the format's range
};

/// One step of FlashAttention-2's Algorithm 1, lines 9 and 10, on scores (keys, queries) whose masked entries
/// are -inf: row_max takes in the tile's maximum, rescale = exp2((old row_max - new row_max) * scale),
/// row_sum becomes rescale * row_sum + sum of P, and scores become P.
/// @param row_max, row_sum, rescale (padded queries); row_max starts as -inf, row_sum as 0
void online_softmax(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                    float* row_max, float* row_sum, float* rescale);

/// The same, where multiplies_bf16_pairs(), with P rounded to bf16 and put into words (bf16_matmul.hpp), of
/// each two keys in turn. What the scores become is undefined.
void online_softmax_in_pairs(float* scores, std::ptrdiff_t stride, int keys, int queries, SoftmaxScale scale,
                             float* row_max, float* row_sum, float* rescale, float* words,
                             std::ptrdiff_t words_stride);

/// Maximum of values[0, count) and `start`.
float row_maximum(const float* values, std::int64_t count, float start);

/// values = exp2((value - row_max) * scale), 0 where masked (-inf). @return their sum
float exp2_row(float* values, std::int64_t count, SoftmaxScale scale, float row_max);

/// scores (rows, cols) become P = exp2(s * scale_log2 - lse_log2), at most 1.
/// @param lse_log2 (queries) lse * log2(e), +inf for a row that sees no key; padded along columns
void probs_from_lse(float* scores, std::ptrdiff_t stride, int rows, int cols, float scale_log2,
                    const float* lse_log2, Queries queries);

/// dprobs (rows, cols) become dS = P * (dP - delta).
/// @param delta (queries), padded along columns
void scores_gradient(const float* probs, float* dprobs, std::ptrdiff_t stride, int rows, int cols,
                     const float* delta, Queries queries);

void scale_values(float* values, float factor, std::int64_t count);                // values *= factor
void multiply_values(float* values, const float* factors, std::int64_t count);     // values *= factors
void add_values(float* sums, const float* values, std::int64_t count);             // sums += values
void blend_values(float a, float* out, float b, const float* in, std::int64_t n);  // out = a out + b in
float dot_product(const float* a, const float* b, std::int64_t count);             // in fp32

/// The vectorised 2^x behind the functions above, x <= 127: within 2 ulp from -126 up, exact at integers, 0
/// below -126.5, NaN for NaN.
void exp2_values(float* values, std::int64_t count);

}  // namespace tilescope
