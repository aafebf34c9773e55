// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/profiled_command.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "common/errors.hpp"
#include "common/installed_files.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kInjectionVariable = "CUDA_INJECTION64_PATH";  // read by the CUDA driver
constexpr const char* kNvtxInjectionVariable = "NVTX_INJECTION64_PATH";
constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kBetweenProgress{2};
constexpr std::chrono::seconds kGrace{5};     // from SIGTERM to SIGKILL
constexpr std::chrono::seconds kLastWait{5};  // from SIGKILL on: what sits in the driver may not end at all

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

/// The command that is told to end when we are; 0 before it has started.
std::atomic<pid_t>& running_command() {
  static std::atomic<pid_t> command{0};
  return command;
}

/// A signal of the terminal's has reached the command by itself; one sent to us alone has not.
void pass_on(int signal, siginfo_t* sent, void*) {
  const pid_t command = running_command();
  if (command > 0 && sent->si_code <= 0) kill(command, signal);
}

/// While it lives, processes that lose their parent become ours: none that the command started gets away.
class Subreaper {
 public:
  Subreaper() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

/// While it lives, what interrupts or ends us ends the command, whose record we still have to write.
class SignalsPassedOn {
 public:
  SignalsPassedOn() {
    running_command() = 0;
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalsPassedOn() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    running_command() = 0;
  }
  SignalsPassedOn(const SignalsPassedOn&) = delete;
  SignalsPassedOn& operator=(const SignalsPassedOn&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)]{};
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

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
            const CommandOptions& options) {
  // The command gets the signals as a shell would give them to it; the program itself ignores some.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  // A signal that comes before we know whom to pass it on to waits until we do.
  sigset_t held_back, before;
  sigfillset(&held_back);
  pthread_sigmask(SIG_BLOCK, &held_back, &before);
  posix_spawnattr_setsigmask(&attributes, &before);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  if (options.output_to_stderr) posix_spawn_file_actions_adddup2(&streams, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command.front().c_str(), &streams, &attributes,
                                 pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&streams);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) running_command() = child;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) return child;
  throw BadInput("command", command.front(),
                 std::string("must be a program that can be started (") + std::strerror(error) + ")");
}

/// Counts the lines of a folder's files, reading what is new since it was last asked.
class LineCounter {
 public:
  explicit LineCounter(std::string folder) : folder_(std::move(folder)) {}
  std::int64_t count() {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      std::ifstream file(entry.path());
      std::streamoff& read = read_[entry.path().string()];
      file.seekg(read);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      lines_ += std::count(text.begin(), text.end(), '\n');
      read += static_cast<std::streamoff>(text.size());
    }
    return lines_;
  }

 private:
  std::string folder_;
  std::map<std::string, std::streamoff> read_;  // bytes of each file
  std::int64_t lines_ = 0;
};

/// The processes that descend from this one. Those that have ended are not among them, and our children among
/// those go, but for `kept`, whose end somebody waits for.
std::vector<pid_t> descendants(pid_t kept) {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    std::string text;
    std::getline(std::ifstream(entry.path() / "stat"), text);  // "PID (NAME) STATE PARENT ..."
    const std::size_t name_end = text.rfind(')');
    char state = 0;
    int parent = 0;
    if (name_end == std::string::npos ||
        std::sscanf(text.c_str() + name_end + 1, " %c %d", &state, &parent) != 2) {
      continue;
    }
    const auto process = static_cast<pid_t>(std::atol(text.c_str()));
    if (state != 'Z') {
      children.emplace(parent, process);
    } else if (parent == getpid() && process != kept) {
      waitpid(process, nullptr, WNOHANG);
    }
  }
  std::vector<pid_t> all = {getpid()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [first, last] = children.equal_range(all[i]);
    for (auto child = first; child != last; ++child) all.push_back(child->second);
  }
  all.erase(all.begin());
  return all;
}

/// Ends the command and all that it started, first by request. @returns the command's wait status
int end_all(pid_t child) {
  int status = SIGKILL;
  bool ended = false;
  const auto began = Clock::now();
  for (const pid_t process : descendants(child)) kill(process, SIGTERM);
  for (auto waited = Clock::now() - began; waited < kGrace + kLastWait; waited = Clock::now() - began) {
    ended = ended || waitpid(child, &status, WNOHANG) == child;
    const std::vector<pid_t> left = descendants(child);
    if (ended && left.empty()) break;
    if (waited > kGrace) {
      for (const pid_t process : left) kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  return status;
}

/// @returns the wait status
int wait_for(pid_t child, const std::string& folder, const CommandOptions& options, bool& timed_out) {
  const auto began = Clock::now();
  auto told = began;
  LineCounter lines(folder);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(kPoll);
    const auto now = Clock::now();
    if (options.progress && now - told > kBetweenProgress) {
      told = now;
      options.progress(lines.count());
    }
    if (options.time_limit && now - began > *options.time_limit) {
      timed_out = true;
      return end_all(child);
    }
  }
  return status;
}

void add_end(int status, CommandOutcome& outcome) {
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome.exit_code = outcome.signal ? 128 + outcome.signal : WEXITSTATUS(status);
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
  const SignalsPassedOn signals;
  const Subreaper subreaper;
  CommandOutcome outcome;
  const pid_t child = start(command, environment_with({}), options);
  add_end(wait_for(child, "", options, outcome.timed_out), outcome);
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
  const SignalsPassedOn signals;
  const Subreaper subreaper;
  CommandOutcome outcome;
  const pid_t child = start(command, environment_with(variables), options);
  add_end(wait_for(child, folder.path(), options, outcome.timed_out), outcome);
  outcome.events = read_events(folder.path());
  return outcome;
}

}  // namespace tilescope
