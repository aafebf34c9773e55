// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/counted_devices.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "profiler/driver/device_context.hpp"

namespace tilescope {
namespace {

constexpr std::chrono::seconds kLongestWait{10};

}  // namespace

void CountedDevices::use(std::shared_ptr<const CuptiLibrary> cupti,
                         std::shared_ptr<const DriverLibrary> driver) {
  cupti_ = std::move(cupti);
  driver_ = std::move(driver);
}

DeviceLaunches* CountedDevices::of(CUcontext context) {
  const std::lock_guard lock(mutex_);
  const auto entry = device_of_.find(context);
  return entry == device_of_.end() ? nullptr : entry->second;
}

void CountedDevices::add(CUcontext context) {
  const CurrentContext current(driver_, context);
  CUdevice number = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxGetDevice, &number);
  DeviceLaunches* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    device = device_of_[context] = &devices_[number];
  }
  const std::lock_guard launches(device->mutex);
  device->contexts[context] = nullptr;
  suspend_others(*device, context);
  const std::lock_guard setup(setup_mutex_);
  auto counters = std::make_unique<ContextCounters>(
      cupti_, driver_, context, request_, [this](const KernelMeasurement& kernel) { file_.kernel(kernel); });
  file_.collection(counters->facts());
  const std::string missing = counters->missing_metrics();
  if (!missing.empty()) file_.message(counters->facts().chip + " has no counters for " + missing);
  device->contexts[context] = std::move(counters);
}

void CountedDevices::remove(CUcontext context) {
  DeviceLaunches* const device = of(context);
  if (!device) return;
  {
    const std::lock_guard lock(mutex_);
    device_of_.erase(context);
  }
  const std::lock_guard launches(device->mutex);
  const std::unique_ptr<ContextCounters> counters = std::move(device->contexts[context]);
  device->contexts.erase(context);
  if (!counters) return;
  const CurrentContext current(driver_, context);
  try {
    counters->flush();
  } catch (const std::exception& error) {
    file_.message(error.what());
    counters->abandon();
  }
  add_losses(*counters);
}

void CountedDevices::suspend_others(DeviceLaunches& device, CUcontext launching) {
  for (const auto& [context, counters] : device.contexts) {
    if (context == launching || !counters) continue;
    try {
      counters->suspend();
    } catch (const std::exception& error) {
      give_up(device, context, error.what());
    }
  }
}

void CountedDevices::give_up(DeviceLaunches& device, CUcontext context, const std::string& why) {
  file_.message(why);
  ContextCounters& counters = *device.contexts[context];
  counters.abandon();
  add_losses(counters);
  device.contexts[context] = nullptr;
}

void CountedDevices::add_losses(const ContextCounters& counters) {
  lost_ += counters.lost();
  lost_in_graphs_ += counters.lost_in_graphs();
}

bool CountedDevices::finish() {
  bool whole = true;
  for (auto& [number, device] : devices_) {
    const std::unique_lock lock(device.mutex, kLongestWait);
    if (!lock) {
      file_.message("a launch was still under way at the end; its counters are lost");
      whole = false;
      continue;
    }
    while (!device.contexts.empty()) remove(device.contexts.begin()->first);
  }
  if (lost_ > 0) file_.message(std::to_string(lost_) + " launches lost their counters");
  if (lost_in_graphs_ > 0) {
    file_.message(
        "kernel replay counted nothing of CUDA graphs: use --replay application, or metrics that fit in "
        "one pass");
  }
  return whole && lost_ == 0;
}

}  // namespace tilescope
