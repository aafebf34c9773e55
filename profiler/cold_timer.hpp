// SPDX-License-Identifier: Apache-2.0
// Times of work on the device by CUDA events, without counters: cold L2, warm-up, and a rule for when to
// stop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/device_context.hpp"
#include "profiler/read_sweep.hpp"

namespace tilescope {

struct TimerOptions {
  bool cold_l2 = true;   // each sample begins with an L2 that holds none of the work's lines
  int warm_up = 2;       // runs before the first sample
  int min_samples = 10;  // before the noise is asked
  int max_samples = 1000;
  double max_noise = 0.005;   // relative standard deviation at which sampling stops, 1.0 = 100 %
  double min_time_s = 0.1;    // of all samples together
  double time_limit_s = 15;   // wall time after which sampling stops whatever the noise
  double least_clock = 0.75;  // of the device's boost clock; slower samples were throttled and are dropped
};

struct TimedSamples {
  std::vector<double> samples_s;  // in order; those that were throttled are not among them
  int throttled = 0;              // samples dropped
  double noise = 0;               // relative standard deviation of the samples
  bool noise_met = false;         // the rule was met, not a limit
  bool cold_l2 = true;
  double mean_sm_clock_hz = 0;  // over the samples
  double median_s() const;
  double min_s() const;
};

class ColdTimer {
 public:
  explicit ColdTimer(const DeviceContext& device);
  ~ColdTimer();
  ColdTimer(const ColdTimer&) = delete;
  ColdTimer& operator=(const ColdTimer&) = delete;

  /// Runs `work`, which enqueues on the given stream, again and again.
  /// @throws MachineLacks if every sample was throttled, DriverError
  TimedSamples time(const std::function<void(CUstream)>& work, const TimerOptions& options = {}) const;

 private:
  struct Sample {
    double elapsed_s, sm_clock_hz;
  };
  Sample sample(const std::function<void(CUstream)>& work, bool cold_l2) const;

  std::shared_ptr<const DriverLibrary> driver_;
  ReadSweep sweep_;
  double boost_clock_hz_;
  unsigned sms_;
  CUmodule module_ = nullptr;
  CUfunction stamp_ = nullptr;
  CUdeviceptr stamps_ = 0;  // (2, sms, {cycles, nanoseconds})
  CUevent begin_ = nullptr, end_ = nullptr;
};

/// Standard deviation over mean; 0 for fewer than two samples.
double relative_deviation(const std::vector<double>& samples);

}  // namespace tilescope
