// SPDX-License-Identifier: Apache-2.0
// All that can be measured of a piece of work of this process: launch facts, counters, times, each from runs
// of its own. Plain C++: builds without CUPTI's headers have it too, and refuse.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/errors.hpp"  // MachineLacks
#include "profiler/records/kernel_measurement.hpp"
#include "profiler/timing/timed_samples.hpp"

struct CUstream_st;  // *CUstream, *cudaStream_t

namespace tilescope {

/// What was measured of one piece of work.
struct WorkMeasurement {
  /// Without its times. Its launch is that of the kernel that ran longest; its counters and metrics are the
  /// medians of `counted`, see median_of_launches.
  KernelMeasurement kernel;
  std::vector<KernelMeasurement> counted;  // one for each time that the counters were taken
  std::int64_t launches = 0;               // kernels that the work consists of
  TimedSamples time;
};

class WorkProfiler {
 public:
  /// @param metrics as choose_metrics takes them @param timing l2 is that of the counters too
  /// @throws MachineLacks without a device, libcupti or the permission to count, UnknownMetric
  WorkProfiler(const std::string& metrics, const TimerOptions& timing, int device_index = 0);
  ~WorkProfiler();
  WorkProfiler(const WorkProfiler&) = delete;
  WorkProfiler& operator=(const WorkProfiler&) = delete;

  std::string device() const;  // "NVIDIA H200"
  std::string chip() const;    // CUPTI's name: "GH100"
  std::string driver() const;  // version of CUDA that the driver supports: "13.0"
  /// Runs that the counters take each time that they are taken.
  int passes() const;
  /// Metrics asked for that this chip has no counters for, with commas.
  std::string missing_metrics() const;

  /// Runs `work`, which enqueues kernels on the given stream of the device's primary context and does the
  /// same each time: once for its launch facts, once a pass for its counters, and many times without them.
  /// @param times that the counters are taken, each with all passes and its own L2, cold or warm: 1 or more.
  /// Where DRAM reads vary from launch to launch, one says little
  /// @param prepare  enqueued before each run, and neither counted nor timed: makes again what the work finds
  /// and changes
  WorkMeasurement measure(const std::string& name, const std::function<void(CUstream_st*)>& work,
                          int times = 1, const std::function<void(CUstream_st*)>& prepare = {});
  /// Counters alone, taken once after one run without them: for work that measure() has measured, on other
  /// memory.
  KernelMeasurement count(const std::string& name, const std::function<void(CUstream_st*)>& work,
                          const std::function<void(CUstream_st*)>& prepare = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
