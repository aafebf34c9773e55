// SPDX-License-Identifier: Apache-2.0
// Hardware counters of one CUDA context, through CUPTI's Range Profiler.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/counter_config.hpp"

namespace tilescope {

/// What of its counters a context's device gives to this process.
struct CounterDevice {
  std::string chip;                        // CUPTI's name: "GH100"
  std::vector<std::uint8_t> availability;  // image of the counters that may be read

  /// @param device_index CUDA ordinal of the context's device
  /// @throws CountersUnavailable without permission, device support or while another client holds the
  /// counters
  static CounterDevice probe(const CuptiLibrary& library, CUcontext context, int device_index);
};

/// How the work is cut into ranges, each of which gets its own values.
enum class RangeMode {
  every_kernel,  // a range for each kernel; CUPTI saves memory, replays the kernel for each pass and restores
  pushed         // a range from push() to pop(); the caller repeats the work for each pass
};

/// What was counted in one range.
struct RangeValues {
  std::string name;            // as pushed; "0", "1" ... in order of launch for every_kernel
  std::vector<double> values;  // in the order of CounterSession::counters()
};

/// One choice of counters, collected on one context. start() and stop() enclose the work.
class CounterSession {
 public:
  /// @param max_ranges that fit between two calls of collect()
  /// @throws CountersUnavailable, CuptiError
  CounterSession(std::shared_ptr<const CuptiLibrary> library, CUcontext context, const CounterDevice& device,
                 std::vector<std::string> counters, RangeMode mode, int max_ranges);
  CounterSession(const CounterSession&) = delete;
  CounterSession& operator=(const CounterSession&) = delete;

  const std::vector<std::string>& counters() const { return config_.counters(); }
  int passes() const { return config_.passes(); }
  int max_ranges() const { return max_ranges_; }

  void start();
  void push(const std::string& range);
  void pop();
  /// @returns whether all passes are done; if not, start() and the same work must follow
  bool stop();
  /// After an error between start() and stop(): the range that is open and all values are forgotten, and
  /// start() begins anew.
  void abandon() noexcept;

  /// Every range since the last call, in the order in which the ranges began. Waits for the device. Between
  /// stop() and start() only.
  /// @throws CuptiError if CUPTI dropped a range
  std::vector<RangeValues> collect();

 private:
  void reset();

  std::shared_ptr<const CuptiLibrary> library_;
  std::vector<std::uint8_t> availability_;  // image that the configuration refers to
  CounterConfig config_;
  RangeMode mode_;
  int max_ranges_;
  std::vector<std::uint8_t> counter_data_;
  /// Counters that are on until it goes, whatever the rest of the constructor throws.
  std::unique_ptr<CUpti_RangeProfiler_Object, std::function<void(CUpti_RangeProfiler_Object*)>> object_;
};

}  // namespace tilescope
