// SPDX-License-Identifier: Apache-2.0
// Device memory that a direction takes beside its inputs and outputs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// One kernel on problems that differ in N alone.
struct ExtraMemory {
  std::string label;
  const RunSummary *first = nullptr, *last = nullptr;
  double bytes = 0, extra_bytes = 0;  // at the last
  /// Of N in extra_bytes over the last two lengths; nothing where they are no more than the driver's pages.
  std::optional<double> exponent;
};
/// Up to this exponent of N memory is called linear: the driver's pages make more of it than it is.
inline constexpr double kMostOfLinear = 1.05;
std::vector<ExtraMemory> extra_memory(const std::vector<RunSummary>& runs);

}  // namespace tilescope
