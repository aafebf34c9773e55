// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/launch_choice.hpp"

#include <utility>

namespace tilescope {

NvtxRanges& nvtx_ranges() {
  static NvtxRanges& ranges =
      *new NvtxRanges(request_from_environment().value_or(ProfileRequest{}).nvtx_filter);
  return ranges;
}

std::vector<LaunchedKernel> LaunchChoice::choose(std::vector<KernelMeasurement> kernels) {
  const std::lock_guard lock(mutex_);
  // A graph with communication in it waits for other devices as a whole.
  bool waits = false;
  for (const KernelMeasurement& kernel : kernels) {
    if (!filter_.leaves_out(kernel.name)) continue;
    waits = true;
    if (!left_out_.insert(kernel.name).second) continue;
    file_.message("left out, as it waits for other devices: " + kernel.name +
                  (kernels.size() > 1 ? ", and the graph that it is in" : "") +
                  " (--communication measures it)");
  }
  std::vector<LaunchedKernel> launched;
  for (KernelMeasurement& kernel : kernels) {
    const bool wanted = !waits && nvtx_ranges().inside() && filter_.wants(kernel.name);
    launched.push_back({std::move(kernel), wanted});
  }
  return launched;
}

bool LaunchChoice::done() {
  const std::lock_guard lock(mutex_);
  return filter_.done();
}

}  // namespace tilescope
