// SPDX-License-Identifier: Apache-2.0
// With which power of x something grows.
#pragma once

#include <span>
#include <utility>

namespace tilescope {

/// Least-squares slope of ln y over ln x; with two points, that of the line through both.
/// @param points (x, y), all positive, with two different x or more
double growth_exponent(std::span<const std::pair<double, double>> points);

}  // namespace tilescope
