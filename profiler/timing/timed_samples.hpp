// SPDX-License-Identifier: Apache-2.0
// How work is timed, and the times. Plain data without CUDA.
#pragma once

#include <string_view>
#include <vector>

namespace tilescope {

/// What L2 holds when the work begins: none of its lines and nothing dirty, or what the same work left
/// behind.
enum class L2State { cold, warm };
std::string_view to_string(L2State state);
// L2 replaces lines by a rule of its own: after reads of a buffer of its size old lines would stand. Before
// work that begins cold, so many times its size are read.
constexpr int kSweptL2Multiples = 4;
/// @throws BadInput
L2State parse_l2_state(std::string_view text);

struct TimerOptions {
  L2State l2 = L2State::cold;
  int warm_up = 2;       // runs before the first sample
  int min_samples = 10;  // before the noise is asked
  int max_samples = 1000;
  double max_noise = 0.005;   // relative standard deviation at which sampling stops, 1.0 = 100 %
  double min_time_s = 0.1;    // of all samples together
  double time_limit_s = 15;   // wall time after which sampling stops whatever the noise
  double rest_s = 0;          // before each sample, for which the device is idle
  double least_clock = 0.75;  // of the device's boost clock; slower samples were throttled and are dropped
};

struct TimedSamples {
  std::vector<double> samples_s;  // in order; those that were throttled are not among them
  int throttled = 0;              // samples dropped
  double noise = 0;               // relative standard deviation of the samples
  bool noise_met = false;         // the rule was met, not a limit
  L2State l2 = L2State::cold;
  double mean_sm_clock_hz = 0;  // over the samples
  double median_s() const;
  double min_s() const;
};

}  // namespace tilescope
