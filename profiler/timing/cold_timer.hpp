// SPDX-License-Identifier: Apache-2.0
// Times of work on the device by CUDA events, without counters: cold L2, warm-up, and a rule for when to
// stop.
#pragma once

#include <functional>
#include <memory>

#include "profiler/counters/eviction_sweep.hpp"
#include "profiler/driver/device_context.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

class ColdTimer {
 public:
  explicit ColdTimer(const DeviceContext& device);
  ~ColdTimer();
  ColdTimer(const ColdTimer&) = delete;
  ColdTimer& operator=(const ColdTimer&) = delete;

  /// Runs `work`, which enqueues on the given stream, again and again.
  /// @param prepare  as BracketedCounters::measure takes it; not timed
  /// @throws MachineLacks if every sample was throttled, DriverError
  TimedSamples time(const std::function<void(CUstream)>& work, const TimerOptions& options = {},
                    const std::function<void(CUstream)>& prepare = {}) const;

 private:
  struct Sample {
    double elapsed_s, sm_clock_hz;
  };
  Sample sample(const std::function<void(CUstream)>& work, const std::function<void(CUstream)>& prepare,
                L2State l2) const;

  std::shared_ptr<const DriverLibrary> driver_;
  EvictionSweep sweep_;
  double boost_clock_hz_;
  unsigned sms_;
  CUmodule module_ = nullptr;
  CUfunction stamp_ = nullptr;
  CUdeviceptr stamps_ = 0;  // (2, sms, {cycles, nanoseconds})
  CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace tilescope
