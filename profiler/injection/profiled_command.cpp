// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/profiled_command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "common/child_process.hpp"
#include "common/errors.hpp"
#include "common/installed_files.hpp"
#include "common/temporary_folder.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kInjectionVariable = "CUDA_INJECTION64_PATH";  // read by the CUDA driver
constexpr const char* kNvtxInjectionVariable = "NVTX_INJECTION64_PATH";
constexpr std::chrono::milliseconds kPoll{20};

/// @returns the wait status
int wait_for(ForegroundCommand& command, const CommandOptions& options, bool& timed_out) {
  const auto began = Clock::now();
  for (;;) {
    if (const std::optional<int> status = command.ended()) return *status;
    std::this_thread::sleep_for(kPoll);
    if (options.time_limit && Clock::now() - began > *options.time_limit) {
      timed_out = true;
      return command.end();
    }
  }
}

void add_end(int status, CommandOutcome& outcome) {
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome.exit_code = outcome.signal ? 128 + outcome.signal : WEXITSTATUS(status);
}

/// Runs it to its end, or to the time limit.
CommandOutcome run(const std::vector<std::string>& command,
                   std::vector<std::pair<std::string, std::string>> variables,
                   const CommandOptions& options) {
  ProcessStart start{command, std::move(variables), {}, {}};
  if (options.output_to_stderr) start.output = STDERR_FILENO;
  CommandOutcome outcome;
  try {
    ForegroundCommand running(start);
    add_end(wait_for(running, options, outcome.timed_out), outcome);
  } catch (const std::system_error& failure) {
    throw BadInput("command", command.front(),
                   "must be a program that can be started (" + failure.code().message() + ")");
  }
  return outcome;
}

}  // namespace

std::string injection_library() {
  std::error_code failed;
  if (const char* named = std::getenv("TILESCOPE_INJECTION")) {
    // The driver says nothing of a file that it cannot load.
    if (fs::is_regular_file(named, failed)) return fs::absolute(named).string();
    throw BadInput("TILESCOPE_INJECTION", named, "must name libtilescope_inject.so");
  }
  const fs::path installed = installed_file("lib/tilescope/libtilescope_inject.so");
  if (fs::exists(installed, failed)) return installed.string();
  throw MachineLacks(
      installed.string() +
      " is missing: it is built where CUPTI's headers are found; install the CUDA toolkit and build "
      "again, or name a copy with TILESCOPE_INJECTION");
}

CommandOutcome run_command(const std::vector<std::string>& command, const CommandOptions& options) {
  return run(command, {}, options);
}

CommandOutcome run_profiled(ProfileRequest request, const std::vector<std::string>& command,
                            const CommandOptions& options) {
  const TemporaryFolder folder;
  request.folder = folder.path().string();
  const std::string library = injection_library();
  std::vector<std::pair<std::string, std::string>> variables = {{kInjectionVariable, library},
                                                                {kRequestVariable, to_text(request)}};
  if (!request.nvtx_filter.empty()) variables.emplace_back(kNvtxInjectionVariable, library);
  CommandOutcome outcome = run(command, std::move(variables), options);
  outcome.events = read_events(request.folder);
  return outcome;
}

}  // namespace tilescope
