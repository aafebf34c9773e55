// SPDX-License-Identifier: Apache-2.0
// Many verified runs as a few: those that came nearest to their bounds.
#pragma once

#include <vector>

#include "analysis/records/run_record.hpp"

namespace tilescope::cli {

/// One entry for each kernel with its passes, element type, mask, head grouping, and dropout or none: that of
/// the largest share of a bound. Its `cases` and `failed` count what it stands for, and its errors are by
/// tensor those of the largest share among them.
std::vector<RunEntry> worst_cases(std::vector<RunEntry> runs);

}  // namespace tilescope::cli
