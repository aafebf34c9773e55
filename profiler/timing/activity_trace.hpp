// SPDX-License-Identifier: Apache-2.0
// Every kernel that this process runs, with its launch facts and its time on the device, from CUPTI's
// activity records. Needs no counter permission and slows no kernel down.
#pragma once

#include <functional>
#include <memory>

#include "profiler/counters/cupti_library.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// CUPTI has one activity client a process, so there can be one trace at a time.
class ActivityTrace {
 public:
  /// `sink` is called on a thread of CUPTI's for each kernel that has ended, about in the order of their
  /// ends.
  using Sink = std::function<void(const KernelMeasurement&)>;

  /// @throws CountersUnavailable, CuptiError; std::logic_error while another trace is alive
  ActivityTrace(std::shared_ptr<const CuptiLibrary> library, Sink sink);
  ~ActivityTrace();
  ActivityTrace(const ActivityTrace&) = delete;
  ActivityTrace& operator=(const ActivityTrace&) = delete;

  /// Returns when the sink has had every kernel that has ended on the device.
  void flush();
  /// Records that CUPTI had no room for.
  std::size_t dropped() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tilescope
