// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric/rounding_interval.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {

bool ExactSum::admits(double observed) const {
  return std::abs(observed - value) <= tolerance || observed == value ||
         (std::isnan(observed) && std::isnan(value));
}

SlackProduct slack_dot(const double* a, const double* b, std::int64_t cols) {
  SlackProduct product{0, 0};
  for (std::int64_t d = 0; d < cols; ++d) {
    product.value += a[d] * b[d];
    product.slack += kSumSlack * std::abs(a[d] * b[d]);
  }
  return product;
}

ExactSum rounded_interval(ElementType dtype, double value, double slack) {
  float range[] = {static_cast<float>(value - slack), static_cast<float>(value),
                   static_cast<float>(value + slack)};
  round_to(dtype, range, 3);
  const double width = static_cast<double>(range[2]) - range[0];
  return {dtype == ElementType::fp32 ? value : range[1], std::max(2 * slack, width)};
}

}  // namespace tilescope
