// SPDX-License-Identifier: Apache-2.0
// simulate --record: the runs of a measured record, simulated in their own memory.
#pragma once

#include "analysis/cli/simulate/simulate_arguments.hpp"

namespace tilescope::cli {

/// Replays the runs, prints measured beside simulated DRAM bytes, and writes the simulation's own record.
/// @return the program's exit code @throws BadInput where --json names the record itself
int simulate_again(const SimulateArguments& arguments, const CommandContext& context);

}  // namespace tilescope::cli
