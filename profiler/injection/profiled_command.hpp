// SPDX-License-Identifier: Apache-2.0
// Runs somebody's command with libtilescope_inject.so in every CUDA process of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "profiler/injection/event_file.hpp"
#include "profiler/injection/profile_request.hpp"

namespace tilescope {

struct CommandOutcome {
  int exit_code = 0;  // 128 + signal if a signal ended it
  int signal = 0;     // that ended it, or 0
  bool timed_out = false;
  Events events;
};

struct CommandOptions {
  std::optional<std::chrono::seconds>
      time_limit;                 // after which the command and all that it started are ended
  bool output_to_stderr = false;  // the command's standard output joins its standard error
};

/// libtilescope_inject.so as installed with the running program, or what TILESCOPE_INJECTION names.
/// @throws MachineLacks if there is none, BadInput if the variable names no file
std::string injection_library();

/// Starts `command` (looked for on the PATH) and waits for it, measuring nothing. @returns without events
/// @throws BadInput if it cannot be started
CommandOutcome run_command(const std::vector<std::string>& command, const CommandOptions& options = {});

/// Starts `command` (looked for on the PATH), waits for it and reads what its processes wrote. Its standard
/// streams are those of this process, and so are its signals: one sent to this process alone is passed on.
/// The request's folder is chosen here.
/// @throws BadInput if the command cannot be started, MachineLacks without injection_library() or a folder
/// for
///   temporary files
CommandOutcome run_profiled(ProfileRequest request, const std::vector<std::string>& command,
                            const CommandOptions& options = {});

}  // namespace tilescope
