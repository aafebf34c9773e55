// SPDX-License-Identifier: Apache-2.0
// Medians and spreads of samples: times, counts of launches, clocks.
#pragma once

#include <vector>

namespace tilescope {

/// 0 for none.
double mean_of(const std::vector<double>& values);
/// The middle value, or the mean of the middle two; 0 for none.
double median_of(std::vector<double> values);
/// Standard deviation (of a sample: with n - 1) over mean; 0 for fewer than two values.
double coefficient_of_variation(const std::vector<double>& values);

}  // namespace tilescope
