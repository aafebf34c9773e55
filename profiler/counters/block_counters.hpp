// SPDX-License-Identifier: Apache-2.0
// Counters of whatever a device does between two calls, whoever launches it: of this process, once, without
// replay. Plain C++: builds without CUPTI's headers have it too, and refuse.
#pragma once

#include <memory>
#include <string>

#include "profiler/injection/event_file.hpp"
#include "profiler/records/kernel_measurement.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

/// Counters that are on until it goes. The device may have a context of long standing, with kernels that have
/// run and graphs that were captured: counted is what runs on its primary context from open() to close(),
/// from every thread and stream.
class BlockCounters {
 public:
  /// @param metrics as choose_metrics takes them, no more than one pass can count
  /// @param l2 cold: emptied by open(), and what is left dirty is counted as written by close(); warm: as it
  /// is
  /// @throws BadInput where the metrics take more passes, CountersUnavailable, MachineLacks
  BlockCounters(const std::string& metrics, int device_index, L2State l2);
  ~BlockCounters();
  BlockCounters(const BlockCounters&) = delete;
  BlockCounters& operator=(const BlockCounters&) = delete;

  /// Waits for the device and begins to count.
  void open();
  /// Waits for the device, ends the counting, and says what was counted.
  KernelMeasurement close(const std::string& name);
  /// What the record says of how it was counted.
  CollectionFacts facts() const;
  /// The file of the libcupti that counts.
  std::string library() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
