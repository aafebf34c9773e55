// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/timed_samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

std::string_view to_string(L2State state) { return state == L2State::cold ? "cold" : "warm"; }

L2State parse_l2_state(std::string_view text) {
  for (const L2State state : {L2State::cold, L2State::warm}) {
    if (to_string(state) == text) return state;
  }
  throw BadInput("l2", std::string(text), "must be cold or warm");
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double relative_deviation(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / (count - 1)) / mean;
}

double TimedSamples::median_s() const { return median_of(samples_s); }
double TimedSamples::min_s() const { return *std::min_element(samples_s.begin(), samples_s.end()); }

}  // namespace tilescope
