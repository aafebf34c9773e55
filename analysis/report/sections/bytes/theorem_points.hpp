// SPDX-License-Identifier: Apache-2.0
// The accesses of study `constants`, in the units of FlashAttention's Theorems 2 and 5.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// One algorithm's accesses of one head, at the tile that the paper's rule makes of M.
struct TheoremPoint {
  const RunSummary* run = nullptr;
  double seqlen = 0, head_dim = 0;
  double fast = 0;                   // M [elements]
  double accesses = 0;               // [elements of the inputs' width]
  std::optional<double> as_printed;  // the paper's algorithm, every element as wide as the inputs [elements]

  /// What the theorems say is bounded: accesses over N^2 d^2 / M, and over N d + N^2.
  double of_flash(double elements) const { return elements * fast / (seqlen * seqlen * head_dim * head_dim); }
  double of_flash() const { return of_flash(accesses); }
  double of_standard() const { return accesses / (seqlen * head_dim + seqlen * seqlen); }
  /// d <= M <= N d
  bool within_hypotheses() const { return head_dim <= fast && fast <= seqlen * head_dim; }
};

/// Of the records of study `constants`.
std::vector<TheoremPoint> theorem_points(const std::vector<RunSummary>& study);

/// Least and largest of something.
struct Range {
  double low = 0, high = 0;
  std::size_t count = 0;
  double ratio() const { return high / low; }
};
/// Of `value` over the points of one algorithm and direction that `wanted` keeps.
Range range_of_points(const std::vector<TheoremPoint>& points, Algorithm algorithm, Direction direction,
                      const std::function<bool(const TheoremPoint&)>& wanted,
                      const std::function<double(const TheoremPoint&)>& value);

/// "20.1 ... 22.3"
std::string to_string(const Range& range);

}  // namespace tilescope
