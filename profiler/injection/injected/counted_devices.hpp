// SPDX-License-Identifier: Apache-2.0
// The contexts of a process with their counters, device by device.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "profiler/injection/event_file.hpp"
#include "profiler/injection/injected/context_counters.hpp"
#include "profiler/injection/profile_request.hpp"

namespace tilescope {

/// A device's launches, one at a time: ranges and names are joined by their order, and a device lends its
/// counters to one context at a time. Devices do not wait for each other here, since their kernels may.
struct DeviceLaunches {
  std::recursive_timed_mutex mutex;
  std::map<CUcontext, std::unique_ptr<ContextCounters>> contexts;  // empty pointer: no counters there
};

class CountedDevices {
 public:
  /// Both must outlive it.
  CountedDevices(const ProfileRequest& request, EventFile& file) : request_(request), file_(file) {}
  /// Before anything else.
  void use(std::shared_ptr<const CuptiLibrary> cupti, std::shared_ptr<const DriverLibrary> driver);

  /// A context that was made gets counters; one that goes hands out what its counters hold back.
  void add(CUcontext context);
  void remove(CUcontext context);
  /// Null for a context that was not added.
  DeviceLaunches* of(CUcontext context);
  /// Lets the counters go that other contexts of the device hold; a context whose counters fail on the way
  /// does without them from now on. The device must be locked.
  void suspend_others(DeviceLaunches& device, CUcontext launching);
  /// Does without the counters of a context from now on. The device must be locked.
  void give_up(DeviceLaunches& device, CUcontext context, const std::string& why);

  /// Removes all contexts, and says in the file what was lost. @returns whether nothing was
  bool finish();

 private:
  void add_losses(const ContextCounters& counters);

  const ProfileRequest& request_;
  EventFile& file_;
  std::shared_ptr<const CuptiLibrary> cupti_;
  std::shared_ptr<const DriverLibrary> driver_;
  std::mutex mutex_;  // of the two maps; never held while a device or the driver is waited for
  std::map<CUdevice, DeviceLaunches> devices_;
  std::map<CUcontext, DeviceLaunches*> device_of_;
  std::mutex setup_mutex_;  // one context at a time is given counters
  // Launches without the counters that they should have, and those of them inside graphs.
  std::atomic<std::int64_t> lost_ = 0, lost_in_graphs_ = 0;
};

}  // namespace tilescope
