// SPDX-License-Identifier: Apache-2.0
// What to know before the tables of a simulation are believed: that it cannot be, or not so fast.
#pragma once

#include <string>
#include <vector>

#include "analysis/cli/simulate/simulate_job.hpp"

namespace tilescope::cli {

/// Why jobs could not run as simulated, or not at the machine's full rates: lines that open with "warning: ",
/// of many the first few; none where they could.
std::string warning_lines(const std::vector<SimulateJob>& jobs, const SimulationOptions& how);

}  // namespace tilescope::cli
