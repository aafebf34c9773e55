// SPDX-License-Identifier: Apache-2.0
// How long a problem will take, from a small one like it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

/// What work on the problem takes, 0 where it is short even when done `times` times: a second or so.
/// Otherwise it is done on small ones with as many heads as there are threads, until its time can be told,
/// which grows as the products do.
/// @param seconds_of  does the work on a problem, and says how long that took
double expected_seconds(const AttentionProblem& problem, Direction direction,
                        const std::function<double(const AttentionProblem&)>& seconds_of, int times = 1);

/// "run takes about 40 s\n" where `work` on the problem takes kWorthSaying or longer, else nothing.
std::string announcement(const char* command, const AttentionProblem& problem, Direction direction,
                         const std::function<void(const AttentionProblem&)>& work);

/// What a thread of so many has of a core, as busy as the cores are now with other programs: at most 1. Takes
/// a tenth of a second.
double share_of_cores(int threads);
/// What `seconds` of so many idle cores take on cores as busy as they are now; where that is short,
/// `seconds`.
double seconds_now(double seconds, int threads);

/// The same of `seconds` that are known.
std::string announcement(const char* command, double seconds);

/// What all takes by the share of it that is done, where that is half as long again as was said; nothing
/// before three tenths are done. [seconds]
std::optional<double> longer_than_said(double said, double elapsed, double share_done);

/// Says how long many parts take, a second after the first began; or, where that was said, once they turn out
/// to take longer.
class TimeOfParts {
 public:
  /// @param work  of each part, in any unit @param said  what was said of all of them [seconds]
  TimeOfParts(const CommandContext& context, std::string what, std::vector<double> work,
              std::optional<double> said = std::nullopt);
  /// That part is done.
  void step(std::size_t part);
  /// The next of them is.
  void step() { step(ended_); }

 private:
  const CommandContext& context_;
  std::string what_;
  std::vector<double> work_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<double> expected_;
  double all_ = 0, done_ = 0;
  std::size_t ended_ = 0;
  bool said_ = false;
};

}  // namespace tilescope::cli
