// SPDX-License-Identifier: Apache-2.0
// `tilescope profile -- COMMAND`: every kernel that a command launches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "profiler/injection/profile_request.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::cli {

inline constexpr const char* kApplication = "application";
/// A command whose kernels wait for what cannot come would hold its device for ever. [seconds]
inline constexpr std::int64_t kTimeLimit_s = 1800;

struct CommandToMeasure {
  ProfileRequest request;
  std::vector<std::string> words;  // program and arguments
  std::string replay = "kernel";   // what is repeated for counters of several passes; or kApplication
  bool time = false;               // also times, of a run of their own
  std::int64_t time_limit_s = kTimeLimit_s;  // 0: none
};

/// Before a command runs for an hour of which nobody could count a kernel.
/// @throws BadInput for choices that do not go together, MachineLacks without a driver
void require_countable(const CommandToMeasure& command);

/// Runs the command as often as its counters and times ask for.
KernelRecord measure(const CommandToMeasure& command, const CommandContext& context);

}  // namespace tilescope::cli
