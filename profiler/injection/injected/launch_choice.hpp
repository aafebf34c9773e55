// SPDX-License-Identifier: Apache-2.0
// Which kernels of a launch are wanted, over all threads of the process.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "profiler/injection/event_file.hpp"
#include "profiler/injection/injected/context_counters.hpp"
#include "profiler/injection/injected/launch_filter.hpp"
#include "profiler/injection/injected/nvtx_ranges.hpp"
#include "profiler/injection/profile_request.hpp"

namespace tilescope {

/// The ranges of this process. NVTX may be used before CUDA is, so that the ranges are not the injection's.
NvtxRanges& nvtx_ranges();

class LaunchChoice {
 public:
  /// @param file  is told what is left out, and must outlive it
  LaunchChoice(const ProfileRequest& request, EventFile& file) : filter_(request), file_(file) {}

  /// Marks those that are wanted, and counts them.
  std::vector<LaunchedKernel> choose(std::vector<KernelMeasurement> kernels);
  /// No later launch can be wanted.
  bool done();

 private:
  std::mutex mutex_;
  LaunchFilter filter_;
  std::set<std::string> left_out_;  // kernels that were said to be left out
  EventFile& file_;
};

}  // namespace tilescope
