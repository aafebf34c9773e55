// SPDX-License-Identifier: Apache-2.0
// Records of kernels held against what Nsight Compute measured on the same command.
#pragma once

#include <string>
#include <vector>

#include "profiler/records/kernel_measurement.hpp"

namespace tilescope::cli {

/// A Markdown table of the kernels that `filter`, a regular expression, is found in: our medians, and in
/// percent of ncu's how far they lie from those. Where a launch was measured more than once, how far its
/// values lie apart stands behind each, in percent of the median.
/// @param ours, ncu the launches of each run, in order; each side's runs may hold several rounds of the same
/// launches
/// @throws BadInput where the two do not hold the same launches in the same order
std::string ncu_comparison(const std::vector<std::vector<KernelMeasurement>>& ours,
                           const std::vector<std::vector<KernelMeasurement>>& ncu, const std::string& filter);

}  // namespace tilescope::cli
