// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/expected_time.hpp"

#include <fmt/format.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/replay_cost.hpp"

namespace tilescope::cli {
namespace {

AttentionProblem small_one_like(AttentionProblem problem, std::int64_t rows) {
  problem.batch = 1;
  problem.heads = problem.heads_kv = omp_get_max_threads();
  problem.seqlen_q = std::min(problem.seqlen_q, rows);
  problem.seqlen_k = std::min(problem.seqlen_k, rows);
  problem.key_lengths.clear();
  problem.mask = {};  // whose numbers may be those of the whole length
  return problem;
}

}  // namespace

double expected_seconds(const AttentionProblem& problem, Direction direction,
                        const std::function<double(const AttentionProblem&)>& seconds_of, int times) {
  constexpr double kShort = 2e10;  // FLOP: a second of one slow thread
  constexpr double kTold = 0.05;   // [seconds]
  const auto flops = static_cast<double>(useful_flops(problem, direction));
  if (times * flops < kShort) return 0;
  const std::int64_t most_rows = std::max(problem.seqlen_q, problem.seqlen_k);
  for (std::int64_t rows = 256;; rows *= 2) {  // the first ones start the threads, and are too short to tell
    const AttentionProblem small = small_one_like(problem, rows);
    const double seconds = seconds_of(small);
    const auto small_flops = static_cast<double>(useful_flops(small, direction));
    if ((seconds >= kTold && rows > 512) || rows >= most_rows)
      return small_flops > 0 ? seconds * flops / small_flops : 0;
  }
}

double share_of_cores(int threads) {
  constexpr std::chrono::milliseconds kLong(100);  // some turns of a scheduler
  double of_cores = 0, passed = 0;                 // [seconds] of all threads
#pragma omp parallel num_threads(threads) reduction(+ : of_cores, passed)
  {
    const auto core_seconds = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const auto start = std::chrono::steady_clock::now();
    const double had = core_seconds();
    while (std::chrono::steady_clock::now() - start < kLong) {
    }
    passed += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    of_cores += core_seconds() - had;
  }
  return std::clamp(of_cores / passed, 0.01, 1.0);
}

double seconds_now(double seconds, int threads) {
  constexpr double kShort = 1;
  return seconds < kShort ? seconds : seconds / share_of_cores(threads);
}

std::string announcement(const char* command, double seconds) {
  return seconds < kWorthSaying ? "" : fmt::format("{} takes {}\n", command, about_seconds(seconds));
}

std::string announcement(const char* command, const AttentionProblem& problem, Direction direction,
                         const std::function<void(const AttentionProblem&)>& work) {
  const auto seconds_of = [&work](const AttentionProblem& small) {
    const auto start = std::chrono::steady_clock::now();
    work(small);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  return announcement(command, expected_seconds(problem, direction, seconds_of));
}

std::optional<double> longer_than_said(double said, double elapsed, double share_done) {
  constexpr double kEnough = 0.3, kLonger = 1.5;
  if (share_done < kEnough || elapsed < kLonger * said * share_done) return std::nullopt;
  return elapsed / share_done;
}

TimeOfParts::TimeOfParts(const CommandContext& context, std::string what, std::vector<double> work,
                         std::optional<double> said)
    : context_(context), what_(std::move(what)), work_(std::move(work)), expected_(said) {
  for (const double part : work_) all_ += part;
}

void TimeOfParts::step(std::size_t part) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  done_ += work_.at(part);
  ++ended_;
  if (said_ || ended_ == work_.size() || elapsed.count() < 1) return;
  if (!expected_) {
    said_ = true;
    return context_.print(announcement(what_.c_str(), elapsed.count() * all_ / done_));
  }
  const std::optional<double> seconds = longer_than_said(*expected_, elapsed.count(), done_ / all_);
  if (!seconds || *seconds < kWorthSaying) return;
  said_ = true;
  context_.print(fmt::format("{} takes {}, by what is done of it\n", what_, about_seconds(*seconds)));
}

}  // namespace tilescope::cli
