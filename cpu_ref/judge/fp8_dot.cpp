// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/fp8_dot.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/primitives/fp8_matmul.hpp"

namespace tilescope {
namespace {

constexpr int kNoExponent = -1000;

int factor_exponent(double x, int least) { return std::max(std::ilogb(x), least); }

/// Toward zero, to multiples of 2^(exponent - 13).
double cut(double x, int exponent) {
  const double unit = std::ldexp(1.0, exponent - kFp8SumFractionBits);
  return std::trunc(x / unit) * unit;
}

}  // namespace

double fp8_dot(ElementType dtype, const double* a, const double* b, std::int64_t count, double sum) {
  const int least = dtype == ElementType::fp8e4m3 ? -6 : -14;
  for (std::int64_t first = 0; first < count; first += kFp8SumDepth) {
    const std::int64_t end = std::min(count, first + kFp8SumDepth);
    int largest = sum == 0 ? kNoExponent : std::ilogb(sum);
    for (std::int64_t k = first; k < end; ++k) {
      if (a[k] == 0 || b[k] == 0) continue;
      largest = std::max(largest, factor_exponent(a[k], least) + factor_exponent(b[k], least));
    }
    if (largest == kNoExponent) continue;
    double total = cut(sum, largest);
    for (std::int64_t k = first; k < end; ++k) total += cut(a[k] * b[k], largest);
    sum = total == 0 ? 0 : cut(total, std::ilogb(total));
  }
  return sum;
}

}  // namespace tilescope
