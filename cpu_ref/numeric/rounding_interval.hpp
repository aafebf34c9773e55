// SPDX-License-Identifier: Apache-2.0
// Values in fp64 with the distance that fp32 arithmetic, in any order, can put between them and a kernel's.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// A value or sum as it should be, and how far a right kernel's may be from it.
struct ExactSum {
  double value = 0, tolerance = 0;
  void add(double term, double slack) {
    value += term;
    tolerance += slack;
  }
  /// A NaN is admitted only where a NaN is expected.
  bool admits(double observed) const;
};

/// Rounding errors of an fp32 sum, relative to the sum of its absolute terms. A random walk over the longest
/// sum (256 terms) gives about 16 units of 2^-24; a kernel's fast exp2 and products add a few.
inline constexpr double kSumSlack = 16 * 0x1p-24;
/// A few fp32 operations in a row, relative to their operands.
inline constexpr double kRoundingSlack = 4 * 0x1p-24;
/// An fp32 exponential may vanish below this.
inline constexpr double kSmallestExponential = 0x1p-125;

struct SlackProduct {
  double value, slack;
};

/// Dot product of two rows of fp64 values.
SlackProduct slack_dot(const double* a, const double* b, std::int64_t cols);

/// `value` as `dtype` holds it; the tolerance covers the rounding of every value within `slack`.
ExactSum rounded_interval(ElementType dtype, double value, double slack);

}  // namespace tilescope
