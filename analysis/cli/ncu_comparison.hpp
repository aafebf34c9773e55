// SPDX-License-Identifier: Apache-2.0
// A record of kernels held against what Nsight Compute measured on the same command.
#pragma once

#include <string>
#include <vector>

#include "profiler/kernel_record.hpp"

namespace tilescope::cli {

/// A Markdown table of the kernels that `filter`, a regular expression, is found in: our values, and in
/// percent of ncu's how far they lie from those.
/// @throws BadInput where the two do not hold the same launches in the same order
std::string ncu_comparison(const KernelRecord& record, const std::vector<KernelMeasurement>& ncu,
                           const std::string& filter);

}  // namespace tilescope::cli
