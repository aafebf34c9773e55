// SPDX-License-Identifier: Apache-2.0
// Counters of each kernel that this process launches between two calls, on whatever thread and through
// whatever library: what the injected library does for a command, for who counts himself. Plain C++: builds
// without CUPTI's headers have it too, and refuse.
#pragma once

#include <memory>
#include <string>

#include "profiler/injection/event_file.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

class LaunchCounters {
 public:
  /// @param metrics as choose_metrics takes them; what takes several passes is replayed by CUPTI, kernel by
  /// kernel
  /// @param l2 before each kernel; warm: as the kernel before left it
  /// @param kernel_filter regular expression that names of kernels contain a match of; "" for all
  LaunchCounters(const std::string& metrics, int device_index, L2State l2, const std::string& kernel_filter);
  ~LaunchCounters();
  LaunchCounters(const LaunchCounters&) = delete;
  LaunchCounters& operator=(const LaunchCounters&) = delete;

  /// Counts from now on, on the device's primary context and those that are made meanwhile.
  /// @throws CountersUnavailable where somebody else has subscribed to CUPTI's callbacks, MachineLacks
  void open();
  /// Ends the counting. @returns the kernels in order of launch, and what was not had
  Events close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
