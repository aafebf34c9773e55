// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set, as tile_math.cpp.
#include "cpu_ref/primitives/fp8_matmul.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/primitives/fp8_matmul.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kTileAlign>;
using Ints = hn::RebindToSigned<Floats>;
using Vector = hn::Vec<Floats>;

constexpr std::int32_t kExponentField = 0x7F800000;
/// Keeps sign, exponent and so many bits behind the leading one.
constexpr std::int32_t kKeptBits = ~((1 << (23 - kFp8SumFractionBits)) - 1);

/// 2^exponent of every value, 0 of zeros.
HWY_INLINE Vector power_of(Vector x) {
  const Ints i;
  return hn::BitCast(Floats(), hn::And(hn::BitCast(i, x), hn::Set(i, kExponentField)));
}
/// The same of fp8 factors, whose subnormal numbers have the least normal one's.
HWY_INLINE Vector factor_power(Vector x, Vector least_normal) {
  const Vector power = hn::Max(power_of(x), least_normal);
  return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(Floats())), power);
}
/// 2^(13 - e) and 2^(e - 13) for 2^e, from 2^-100 up.
HWY_INLINE Vector to_units(Vector power) {
  const Ints i;
  return hn::BitCast(Floats(),
                     hn::Sub(hn::Set(i, (2 * 127 + kFp8SumFractionBits) << 23), hn::BitCast(i, power)));
}
HWY_INLINE Vector unit_of(Vector power) { return hn::Mul(power, hn::Set(Floats(), 0x1p-13f)); }

/// One instruction, for a vector of columns. Every number here is exact in fp32: terms are below 2^15 units.
/// @param a, a_power  the row's `depth` factors, side by side
HWY_INLINE Vector add_products(Vector sum, const float* HWY_RESTRICT a, const float* HWY_RESTRICT a_power,
                               const float* HWY_RESTRICT b, std::ptrdiff_t b_stride,
                               const float* HWY_RESTRICT b_power, std::ptrdiff_t power_stride, int depth) {
  const Floats d;
  const Ints i;
  Vector largest = power_of(sum);
  for (int k = 0; k < depth; ++k) {
    largest = hn::Max(largest, hn::Mul(hn::Set(d, a_power[k]), hn::LoadU(d, b_power + k * power_stride)));
  }
  largest = hn::Max(largest, hn::Set(d, 0x1p-100f));
  const Vector units = to_units(largest);
  Vector total = hn::Trunc(hn::Mul(sum, units));
  for (int k = 0; k < depth; ++k) {
    const Vector product = hn::Mul(hn::Set(d, a[k]), hn::LoadU(d, b + k * b_stride));
    total = hn::Add(total, hn::Trunc(hn::Mul(product, units)));
  }
  const Vector kept = hn::BitCast(d, hn::And(hn::BitCast(i, total), hn::Set(i, kKeptBits)));
  return hn::Mul(kept, unit_of(largest));
}

void Fp8TileMatmul(float least_normal, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride,
                   float* c, std::ptrdiff_t c_stride, int rows, int cols, int depth, bool accumulate) {
  const Floats d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Vector least = hn::Set(d, least_normal);
  const int width = padded(cols);
  std::vector<float> b_power(static_cast<std::size_t>(depth * width));
  for (int k = 0; k < depth; ++k) {
    for (int col = 0; col < cols; col += lanes) {
      hn::StoreU(factor_power(hn::LoadU(d, b + k * b_stride + col), least), d,
                 b_power.data() + k * width + col);
    }
  }
  std::vector<float> a_row(static_cast<std::size_t>(padded(depth))), a_power(a_row.size());
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < depth; ++k)
      a_row[static_cast<std::size_t>(k)] = a.data[row * a.row_stride + k * a.depth_stride];
    for (int k = 0; k < depth; k += lanes) {
      hn::StoreU(factor_power(hn::LoadU(d, a_row.data() + k), least), d, a_power.data() + k);
    }
    for (int col = 0; col < cols; col += lanes) {
      float* target = c + row * c_stride + col;
      Vector sum = accumulate ? hn::LoadU(d, target) : hn::Zero(d);
      for (int k = 0; k < depth; k += kFp8SumDepth) {
        sum = add_products(sum, a_row.data() + k, a_power.data() + k, b + k * b_stride + col, b_stride,
                           b_power.data() + k * width + col, width, std::min(kFp8SumDepth, depth - k));
      }
      hn::StoreU(sum, d, target);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(Fp8TileMatmul);

void fp8_tile_matmul(ElementType dtype, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride,
                     float* c, std::ptrdiff_t c_stride, int rows, int cols, int depth,
                     Accumulate accumulate) {
  const float least_normal = dtype == ElementType::fp8e4m3 ? 0x1p-6f : 0x1p-14f;
  HWY_DYNAMIC_DISPATCH(Fp8TileMatmul)
  (least_normal, a, b, b_stride, c, c_stride, rows, cols, depth, accumulate == Accumulate::yes);
}

}  // namespace tilescope
#endif
