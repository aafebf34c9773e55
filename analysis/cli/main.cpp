// SPDX-License-Identifier: Apache-2.0
// The program `tilescope`, and `tilescope-emulate`, which runs its command `emulate`.
#include "analysis/cli/command_line.hpp"

int main(int argc, char** argv) { return tilescope::cli::run_command_line({argv, argv + argc}); }
