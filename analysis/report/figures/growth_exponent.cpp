// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/growth_exponent.hpp"

#include <cmath>

namespace tilescope {

double growth_exponent(std::span<const std::pair<double, double>> points) {
  double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const auto& [x, y] : points) {
    const double lx = std::log(x), ly = std::log(y);
    x_sum += lx;
    y_sum += ly;
    xx_sum += lx * lx;
    xy_sum += lx * ly;
  }
  const double n = static_cast<double>(points.size());
  return (n * xy_sum - x_sum * y_sum) / (n * xx_sum - x_sum * x_sum);
}

}  // namespace tilescope
