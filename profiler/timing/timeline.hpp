// SPDX-License-Identifier: Apache-2.0
// What a device does while some work runs, against time, by sampling its counters: for work that cannot be
// repeated, or that consists of too much to be looked at kernel by kernel. Counts everybody's work on the
// device. Plain C++: builds without CUPTI's headers have it too, and refuse.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilescope {

/// Means over one interval. Shares of the device's peak: 1.0 = 100 %.
struct TimelineSample {
  double start_s = 0;  // since the first sample
  double length_s = 0;
  double dram_read_bytes = 0, dram_write_bytes = 0;
  double dram_read_share = 0, dram_write_share = 0;
  double tensor_share = 0;     // cycles in which the tensor pipes were active
  double sm_active_share = 0;  // cycles in which an SM had a warp
};

struct Timeline {
  std::string device, chip, driver;
  double interval_s = 0;
  std::vector<TimelineSample> samples;
  bool overflowed = false;  // samples were lost: the interval is too short for the device's buffer
};

/// Samples device 0 while `work` runs on the calling thread.
/// @param interval_s from 1e-5 to 1
/// @throws MachineLacks without a device or the permission, or on a chip that cannot sample by time; whatever
/// `work` throws
Timeline sample_timeline(double interval_s, const std::function<void()>& work);

}  // namespace tilescope
