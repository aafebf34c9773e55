// SPDX-License-Identifier: Apache-2.0
// How long a problem will take, from a small one like it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
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

/// The same of `seconds` that are known.
std::string announcement(const char* command, double seconds);

/// Says how long many parts take, a second after the first began.
class TimeOfParts {
 public:
  /// @param work  of each part in the order in which they end, in any unit
  TimeOfParts(const CommandContext& context, const char* command, std::vector<double> work);
  /// The next part is done.
  void step();

 private:
  const CommandContext& context_;
  const char* command_;
  std::vector<double> work_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double all_ = 0, done_ = 0;
  std::size_t next_ = 0;
  bool said_ = false;
};

}  // namespace tilescope::cli
