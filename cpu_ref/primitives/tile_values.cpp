// SPDX-License-Identifier: Apache-2.0
// Sums, products and maxima of a tile's values. Compiled once for each instruction set, as tile_math.cpp is.
#include "cpu_ref/primitives/tile_math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/primitives/tile_values.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kTileAlign>;

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
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
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

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(RowMaximum);
HWY_EXPORT(ScoresGradient);
HWY_EXPORT(ScaleValues);
HWY_EXPORT(MultiplyValues);
HWY_EXPORT(AddValues);
HWY_EXPORT(BlendValues);
HWY_EXPORT(DotProduct);

float row_maximum(const float* values, std::int64_t count, float start) {
  return HWY_DYNAMIC_DISPATCH(RowMaximum)(values, count, start);
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

}  // namespace tilescope
#endif  // HWY_ONCE
