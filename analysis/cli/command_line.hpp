// SPDX-License-Identifier: Apache-2.0
// The command line: finds the command, runs it, and turns every way it can fail into one sentence on standard
// error and an exit code.
#pragma once

#include <string>
#include <vector>

namespace tilescope::cli {

int run_command_line(const std::vector<std::string>& argv);

}  // namespace tilescope::cli
