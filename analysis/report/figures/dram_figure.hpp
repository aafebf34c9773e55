// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// Adds sweeps over lengths that leave the L2, measured and simulated: a panel each, and their numbers.
void add_dram_sweeps(Section& section, const std::vector<RunSummary>& runs);

}  // namespace tilescope
