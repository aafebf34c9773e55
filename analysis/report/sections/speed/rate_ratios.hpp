// SPDX-License-Identifier: Apache-2.0
// Ratios of rates with what their samples leave open.
#pragma once

#include <span>
#include <string>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// Times of one problem on two kernels. [s]
struct TimedPair {
  const RunSummary* ours = nullptr;
  const RunSummary* peer = nullptr;
};

/// Our rate over the peer's, geometric mean over problems.
struct RateRatio {
  double by_medians = 0;
  /// 95 of 100 resamples; where samples were not kept, what their number and deviation leave open; both
  /// by_medians where nothing was noted.
  double low = 0, high = 0;
  double by_minima = 0;
  /// "1.08 (1.07 ... 1.09)"
  std::string text() const;
};
/// Precondition: one pair or more. Samples of either side are drawn anew within each problem, by a generator
/// with a fixed seed.
RateRatio rate_ratio(std::span<const TimedPair> pairs);

/// Standard error of a direction's median time, relative, by the number and deviation of its samples; 0 where
/// these were not noted.
double median_error(const RunSummary& run);
/// Standard errors either side that 95 of 100 lie within.
inline constexpr double kErrorsOf95 = 1.96;

}  // namespace tilescope
