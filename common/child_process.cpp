// SPDX-License-Identifier: Apache-2.0
#include "common/child_process.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <thread>

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kGrace{5};     // from SIGTERM to SIGKILL
constexpr std::chrono::seconds kLastWait{5};  // from SIGKILL on: what sits in the driver may not end at all

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

/// While it lives, what interrupts or ends us ends the command, whose record we still have to write; and its
/// end can be waited for, which it cannot be where SIGCHLD is ignored.
class SignalsPassedOn {
 public:
  SignalsPassedOn() {
    running_command() = 0;
    struct sigaction awaited {};
    awaited.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &awaited, &before_child_);
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
    sigaction(SIGCHLD, &before_child_, nullptr);
    running_command() = 0;
  }
  SignalsPassedOn(const SignalsPassedOn&) = delete;
  SignalsPassedOn& operator=(const SignalsPassedOn&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)]{}, before_child_{};
};

/// This process's environment with some variables set anew.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& set) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    const auto is_set = [&](const auto& pair) { return text.starts_with(pair.first + "="); };
    if (std::ranges::none_of(set, is_set)) result.push_back(text);
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

/// While it lives, signals to this thread wait.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

  sigset_t before;
};

pid_t spawn(const ProcessStart& start, const sigset_t& mask) {
  // The program gets the signals as a shell would give them to it; this one ignores some.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGCHLD}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  if (start.input) posix_spawn_file_actions_adddup2(&streams, *start.input, STDIN_FILENO);
  if (start.output) posix_spawn_file_actions_adddup2(&streams, *start.output, STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, start.command.front().c_str(), &streams, &attributes,
                   pointers(start.command).data(), pointers(environment_with(start.variables)).data());
  posix_spawn_file_actions_destroy(&streams);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category());
  return child;
}

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

}  // namespace

pid_t start_process(const ProcessStart& start) { return spawn(start, SignalsHeldBack().before); }

ForegroundCommand::ForegroundCommand(const ProcessStart& start)
    : signals_(std::make_shared<SignalsPassedOn>()), subreaper_(std::make_shared<Subreaper>()) {
  // A signal that comes before we know whom to pass it on to waits until we do.
  const SignalsHeldBack held;
  child_ = spawn(start, held.before);
  running_command() = child_;
}

ForegroundCommand::~ForegroundCommand() = default;

std::optional<int> ForegroundCommand::ended() {
  int status = 0;
  const pid_t waited = waitpid(child_, &status, WNOHANG);
  if (waited == child_) return status;
  if (waited == 0 || errno == EINTR) return std::nullopt;
  throw std::system_error(errno, std::generic_category(), "the end of a command was not seen");
}

int ForegroundCommand::end() {
  int status = SIGKILL;
  bool has_ended = false;
  const auto began = Clock::now();
  for (const pid_t process : descendants(child_)) kill(process, SIGTERM);
  for (auto waited = Clock::now() - began; waited < kGrace + kLastWait; waited = Clock::now() - began) {
    has_ended = has_ended || waitpid(child_, &status, WNOHANG) == child_;
    const std::vector<pid_t> left = descendants(child_);
    if (has_ended && left.empty()) break;
    if (waited > kGrace) {
      for (const pid_t process : left) kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  return status;
}

}  // namespace tilescope
