// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/expected_time.hpp"

#include <fmt/format.h>
#include <omp.h>

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

TimeOfParts::TimeOfParts(const CommandContext& context, const char* command, std::vector<double> work)
    : context_(context), command_(command), work_(std::move(work)) {
  for (const double part : work_) all_ += part;
}

void TimeOfParts::step() {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  done_ += work_.at(next_++);
  if (said_ || next_ == work_.size() || elapsed.count() < 1) return;
  said_ = true;
  context_.print(announcement(command_, elapsed.count() * all_ / done_));
}

}  // namespace tilescope::cli
