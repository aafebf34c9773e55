// SPDX-License-Identifier: Apache-2.0
#include "profiler/work_profiler.hpp"

#include <vector>

#include "profiler/counters/bracketed_counters.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "profiler/timing/activity_trace.hpp"
#include "profiler/timing/cold_timer.hpp"
#include "profiler/timing/nvtx_range.hpp"

namespace tilescope {

struct WorkProfiler::State {
  State(const std::string& metrics, const TimerOptions& timing, int device_index)
      : device(device_index),
        cupti(CuptiLibrary::load()),
        counters(cupti, device, metrics, timing.l2),
        timer(device),
        timing(timing) {}

  DeviceContext device;
  std::shared_ptr<const CuptiLibrary> cupti;
  BracketedCounters counters;
  ColdTimer timer;
  TimerOptions timing;
};

namespace {

using Work = std::function<void(CUstream_st*)>;

std::vector<KernelMeasurement> trace(const std::shared_ptr<const CuptiLibrary>& cupti,
                                     const DriverLibrary& driver, const Work& work) {
  const NvtxRange range("launch facts");
  std::vector<KernelMeasurement> kernels;
  ActivityTrace activity(cupti, [&kernels](const KernelMeasurement& kernel) { kernels.push_back(kernel); });
  work(nullptr);
  TILESCOPE_DRIVER_CALL(driver, cuCtxSynchronize);
  activity.flush();
  return kernels;
}

/// The one that ran longest.
const KernelMeasurement* main_kernel(const std::vector<KernelMeasurement>& kernels) {
  const KernelMeasurement* longest = nullptr;
  for (const KernelMeasurement& kernel : kernels) {
    const auto time_s = [](const KernelMeasurement& k) { return k.time ? k.time->median_s() : 0; };
    if (!longest || time_s(kernel) > time_s(*longest)) longest = &kernel;
  }
  return longest;
}

}  // namespace

WorkProfiler::WorkProfiler(const std::string& metrics, const TimerOptions& timing, int device_index)
    : state_(std::make_unique<State>(metrics, timing, device_index)) {}
WorkProfiler::~WorkProfiler() {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  state_.reset();
}

std::string WorkProfiler::device() const { return state_->device.name(); }
std::string WorkProfiler::chip() const { return state_->counters.chip(); }
std::string WorkProfiler::driver() const { return state_->device.driver_version(); }
int WorkProfiler::passes() const { return state_->counters.passes(); }
std::string WorkProfiler::missing_metrics() const { return names_of_missing(state_->counters.choice()); }

WorkMeasurement WorkProfiler::measure(const std::string& name, const Work& work, int times,
                                      const Work& prepare) {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  const NvtxRange range(name.c_str());
  const DriverLibrary& driver = *state_->device.driver();
  const std::vector<KernelMeasurement> launched = trace(state_->cupti, driver, work);
  WorkMeasurement measurement;
  {
    const NvtxRange phase("counters");
    for (int i = 0; i < times; ++i) {
      measurement.counted.push_back(state_->counters.measure(name, work, prepare));
    }
    measurement.kernel = median_of_launches(measurement.counted);
  }
  measurement.launches = static_cast<std::int64_t>(launched.size());
  if (const KernelMeasurement* kernel = main_kernel(launched)) {
    measurement.kernel.name = kernel->name;
    measurement.kernel.launch = kernel->launch;
  }
  const NvtxRange phase("times");
  measurement.time = state_->timer.time(work, state_->timing, prepare);
  return measurement;
}

KernelMeasurement WorkProfiler::count(const std::string& name, const Work& work, const Work& prepare) {
  const CurrentContext current(state_->device.driver(), state_->device.get());
  const NvtxRange range(name.c_str());
  work(nullptr);
  TILESCOPE_DRIVER_CALL(*state_->device.driver(), cuCtxSynchronize);
  return state_->counters.measure(name, work, prepare);
}

}  // namespace tilescope
