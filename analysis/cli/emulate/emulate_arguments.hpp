// SPDX-License-Identifier: Apache-2.0
// What `tilescope emulate` is told, and its work, which a program of its own has: the emulator takes as long
// to compile as half of what other commands need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"

namespace tilescope::cli {

struct EmulateArguments {
  std::vector<std::string> words;  // the kernel's file, or a program and its arguments
  std::string launch, arch = "sm_90a";
  bool races = false, verdict = false;
  std::int64_t seed = 1, threads = 0, most_seconds = 600;
};

/// In tilescope-emulate: emulates. In tilescope: becomes tilescope-emulate, which stands beside it.
/// @returns an ExitCode
int run_emulate(const EmulateArguments& arguments, const CommandContext& context);

}  // namespace tilescope::cli
