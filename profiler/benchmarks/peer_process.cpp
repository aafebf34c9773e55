// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/peer_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/child_process.hpp"
#include "common/errors.hpp"
#include "common/installed_files.hpp"
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

std::string peers_script() {
  std::error_code failed;
  const fs::path script = installed_file("share/tilescope/benchmarks/peers.py");
  if (fs::exists(script, failed)) return script.string();
  throw MachineLacks(script.string() + " is missing: build again, or copy profiler/benchmarks/*.py there");
}

/// Kind and numbers; null without one.
Json mask_of(const AttentionProblem& problem) {
  if (!problem.mask.any()) return nullptr;
  return {{"kind", mask_model(problem.mask.kind).name}, {"numbers", problem.mask.numbers}};
}

/// Those that are there, with their numbers.
Json score_mods_of(const AttentionProblem& problem) {
  Json mods = Json::object();
  for (const ScoreModRow& row : score_mod_rows()) {
    if (const double value = row.get(problem.score_mods); value != 0) mods[row.name] = value;
  }
  return mods;
}

/// An answer that is none ends the process's use, as its death does.
class NoAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace

PeerProcess::PeerProcess(const std::string& python, double answer_limit_s)
    : PeerProcess(std::vector<std::string>{python, "-u", peers_script()}, answer_limit_s) {}

PeerProcess::PeerProcess(const std::vector<std::string>& command, double answer_limit_s)
    : answer_limit_s_(answer_limit_s) {
  // Sockets, so that a process that is gone can be written to without a signal.
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw MachineLacks(std::string("no socket for the peers' process: ") + std::strerror(errno));
  }
  socket_ = ends[0];
  std::string failed;
  try {
    child_ = start_process({command, {}, ends[1], ends[1]});
  } catch (const std::system_error& failure) {
    failed = failure.code().message();
  }
  close(ends[1]);
  if (!failed.empty()) {
    end();
    throw MachineLacks("the peers need " + command.front() + ", which cannot be started (" + failed +
                       "); TileScope's kernels can be timed without --peers");
  }
  try {
    const Json hello = Json::parse(read_line());
    if (hello.contains("lacks")) throw NoAnswer(hello.at("lacks").get<std::string>());
    names_ = hello.at("peers").get<std::vector<std::string>>();
    versions_ = hello.at("versions").get<std::string>();
  } catch (const std::exception& problem) {
    end();
    throw MachineLacks(std::string("the peers cannot be timed: ") + problem.what() +
                       "; TileScope's kernels can be timed without --peers");
  }
}

PeerProcess::~PeerProcess() { end(); }

void PeerProcess::end() {
  if (socket_ >= 0) close(socket_);  // the end of its input is what the script waits for
  socket_ = -1;
  if (child_ == 0) return;
  const auto began = Clock::now();
  while (waitpid(child_, nullptr, WNOHANG) == 0) {
    if (Clock::now() - began > std::chrono::seconds(2)) kill(child_, SIGKILL);
    usleep(10'000);
  }
  child_ = 0;
}

std::string PeerProcess::read_line() {
  const auto until = Clock::now() + std::chrono::duration<double>(answer_limit_s_);
  for (;;) {
    const std::size_t newline = unread_.find('\n');
    if (newline != std::string::npos) {
      const std::string line = unread_.substr(0, newline);
      unread_.erase(0, newline + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd waiting{socket_, POLLIN, 0};
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      throw NoAnswer("no answer in " + std::to_string(static_cast<int>(answer_limit_s_)) + " s");
    std::array<char, 65536> block;
    const ssize_t count = read(socket_, block.data(), block.size());
    if (count <= 0) throw NoAnswer("the process ended");
    unread_.append(block.data(), static_cast<std::size_t>(count));
  }
}

PeerAnswer PeerProcess::time(const std::string& peer, const AttentionProblem& problem, Direction direction,
                             const TimerOptions& timing) {
  if (!gone_.empty()) return {{}, gone_, 0};
  if (problem.dropout > 0 || problem.descales.any() || problem.shared_kv) {
    return {{}, "peers are timed without dropout, descales and keys that are values", 0};
  }
  const Json request{{"peer", peer},
                     {"batch", problem.batch},
                     {"heads", problem.heads},
                     {"heads_kv", problem.heads_kv},
                     {"seqlen_q", problem.seqlen_q},
                     {"seqlen_k", problem.seqlen_k},
                     {"key_lengths", problem.key_lengths},
                     {"page_size", problem.page_size},
                     {"window", {problem.window_left, problem.window_right}},
                     {"mask", mask_of(problem)},
                     {"score_mods", score_mods_of(problem)},
                     {"head_dim", problem.head_dim},
                     {"head_dim_v", problem.value_dim()},
                     {"dtype", to_string(problem.dtype)},
                     {"kv_dtype", to_string(problem.kv_type())},
                     {"causal", problem.causal},
                     {"scale", problem.scale()},
                     {"seed", problem.seed},
                     {"direction", to_string(direction)},
                     {"warm_up", timing.warm_up},
                     {"min_samples", timing.min_samples},
                     {"max_samples", timing.max_samples},
                     {"max_noise", timing.max_noise},
                     {"min_time_s", timing.min_time_s},
                     {"time_limit_s", timing.time_limit_s}};
  const std::string line = request.dump() + "\n";
  try {
    if (send(socket_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
      throw NoAnswer("the process ended");
    }
    const Json reply = Json::parse(read_line());
    if (reply.contains("lacks")) return {{}, reply.at("lacks").get<std::string>(), 0};
    return {reply.at("samples_s").get<std::vector<double>>(), "", reply.value("sm_clock_hz", 0.0)};
  } catch (const std::exception& failure) {
    gone_ = std::string("the peers' process is lost: ") + failure.what();
    kill(child_, SIGKILL);
    end();
    return {{}, gone_, 0};
  }
}

}  // namespace tilescope
