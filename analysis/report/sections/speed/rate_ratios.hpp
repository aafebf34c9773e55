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
  double low = 0, high = 0;  // 95 of 100 resamples; both by_medians where samples were not kept
  double by_minima = 0;
  /// "1.08 (1.07 ... 1.09)"
  std::string text() const;
};
/// Precondition: one pair or more. Samples of either side are drawn anew within each problem, by a generator
/// with a fixed seed.
RateRatio rate_ratio(std::span<const TimedPair> pairs);

}  // namespace tilescope
