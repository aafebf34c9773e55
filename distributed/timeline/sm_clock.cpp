// SPDX-License-Identifier: Apache-2.0
#include "distributed/timeline/sm_clock.hpp"

#include <algorithm>
#include <functional>

namespace tilescope {

double SmClock::uneven_seconds() const {
  double idle = 0;
  for (const double free : free_) idle += latest_ - free;
  return idle / static_cast<double>(free_.size());
}

double SmClock::advance(double time) {
  double idle = 0;
  for (double& free : free_) {  // a heap stays one
    if (free >= time) continue;
    idle += std::max(0.0, std::min(time, latest_) - free);
    free = time;
  }
  latest_ = std::max(latest_, time);
  return idle / static_cast<double>(free_.size());
}

void SmClock::insert(double seconds) {
  for (double& free : free_) free += seconds;
  latest_ += seconds;
}

double SmClock::take_turn(double seconds) {
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const double end = free_.back() += seconds;
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  latest_ = std::max(latest_, end);
  return end;
}

double SmClock::issue(const std::vector<EvenCtas>& runs, double tile_seconds) {
  const auto sms = static_cast<std::int64_t>(free_.size());
  double end = 0;
  for (const EvenCtas& run : runs) {
    const double seconds = run.tiles * tile_seconds;
    std::int64_t left = run.ctas;
    while (left > 0) {
      // No SM gets a second one of these before each has one: so many rounds at once.
      if (left >= sms && latest_ - free_.front() <= seconds) {
        const double rounds = static_cast<double>(left / sms) * seconds;
        for (double& free : free_) free += rounds;
        end = latest_ += rounds;
        left %= sms;
        continue;
      }
      end = std::max(end, take_turn(seconds));
      --left;
    }
  }
  return end;
}

}  // namespace tilescope
