// SPDX-License-Identifier: Apache-2.0
#include "profiler/profiled_command.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cpu_ref/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kInjectionVariable = "CUDA_INJECTION64_PATH";  // read by the CUDA driver
constexpr const char* kNvtxInjectionVariable = "NVTX_INJECTION64_PATH";
constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kBetweenProgress{2};
constexpr std::chrono::seconds kGrace{5};  // from SIGTERM to SIGKILL

/// A folder that goes when the object does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code ignored;
    path_ = (fs::temp_directory_path(ignored) / "tilescope-XXXXXX").string();
    if (!mkdtemp(path_.data())) {
      throw MachineLacks("no folder for temporary files could be made as " + path_ + " (" +
                         std::strerror(errno) + ")");
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Lets the terminal's interrupt end the command but not us, who still have its record to write.
class InterruptsIgnored {
 public:
  InterruptsIgnored() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &interrupt_);
    sigaction(SIGQUIT, &ignore, &quit_);
  }
  ~InterruptsIgnored() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGQUIT, &quit_, nullptr);
  }
  InterruptsIgnored(const InterruptsIgnored&) = delete;
  InterruptsIgnored& operator=(const InterruptsIgnored&) = delete;

 private:
  struct sigaction interrupt_ {
  }, quit_{};
};

/// This process's environment with some variables set anew.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& set) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    const auto is_set = [&](const auto& pair) { return text.starts_with(pair.first + "="); };
    if (std::none_of(set.begin(), set.end(), is_set)) result.push_back(text);
  }
  for (const auto& [name, value] : set) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  // The command gets the signals as a shell would give them to it; the program itself ignores some.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command.front().c_str(), nullptr, &attributes,
                                 pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return child;
  throw BadInput("command", command.front(),
                 std::string("must be a program that can be started (") + std::strerror(error) + ")");
}

std::int64_t count_lines(const std::string& folder) {
  std::int64_t lines = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    std::ifstream file(entry.path());
    lines += std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  return lines;
}

/// @returns the wait status
int wait_for(pid_t child, const std::string& folder, const CommandOptions& options, bool& timed_out) {
  const auto began = Clock::now();
  auto told = began;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(kPoll);
    const auto now = Clock::now();
    if (options.progress && now - told > kBetweenProgress) {
      told = now;
      options.progress(count_lines(folder));
    }
    if (options.time_limit && now - began > *options.time_limit) {
      kill(child, timed_out && now - began > *options.time_limit + kGrace ? SIGKILL : SIGTERM);
      timed_out = true;
    }
  }
  return status;
}

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

std::string injection_library() {
  if (const char* named = std::getenv("TILESCOPE_INJECTION")) return fs::absolute(named).string();
  std::error_code failed;
  const fs::path beside = fs::read_symlink("/proc/self/exe", failed).parent_path() / "libtilescope_inject.so";
  if (fs::exists(beside, failed)) return beside.string();
  throw MachineLacks(
      beside.string() +
      " is missing: it is built where CUPTI's headers are found; install the CUDA toolkit and build "
      "again, or name a copy with TILESCOPE_INJECTION");
}

CommandOutcome run_command(const std::vector<std::string>& command, const CommandOptions& options) {
  const InterruptsIgnored guard;
  CommandOutcome outcome;
  outcome.exit_code =
      exit_code(wait_for(start(command, environment_with({})), "", options, outcome.timed_out));
  return outcome;
}

CommandOutcome run_profiled(ProfileRequest request, const std::vector<std::string>& command,
                            const CommandOptions& options) {
  const TemporaryFolder folder;
  request.folder = folder.path();
  const std::string library = injection_library();
  std::vector<std::pair<std::string, std::string>> variables = {{kInjectionVariable, library},
                                                                {kRequestVariable, to_text(request)}};
  if (!request.nvtx_filter.empty()) variables.emplace_back(kNvtxInjectionVariable, library);
  const InterruptsIgnored guard;
  CommandOutcome outcome;
  outcome.exit_code = exit_code(
      wait_for(start(command, environment_with(variables)), folder.path(), options, outcome.timed_out));
  outcome.events = read_events(folder.path());
  return outcome;
}

}  // namespace tilescope
