// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/closed_network.hpp"

namespace tilescope {

double steps_per_clock(const std::vector<double>& clocks, double apart, int workers) {
  std::vector<double> queues(clocks.size(), 0.0);  // at each unit, with one worker fewer
  double rate = 0;
  for (int number = 1; number <= workers; ++number) {
    double round = apart;
    for (std::size_t unit = 0; unit < clocks.size(); ++unit) round += clocks[unit] * (1 + queues[unit]);
    rate = number / round;
    for (std::size_t unit = 0; unit < clocks.size(); ++unit) {
      queues[unit] = rate * clocks[unit] * (1 + queues[unit]);
    }
  }
  return rate;
}

}  // namespace tilescope
