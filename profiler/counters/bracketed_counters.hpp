// SPDX-License-Identifier: Apache-2.0
// Counters of one piece of work between two eviction sweeps of L2. It begins with a cold L2 in which nothing
// is dirty, and what it leaves dirty is written back, and counted, during the sweep after it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/counter_session.hpp"
#include "profiler/counters/eviction_sweep.hpp"
#include "profiler/counters/metric_sets.hpp"
#include "profiler/driver/device_context.hpp"
#include "profiler/records/kernel_measurement.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

inline constexpr int kRangesOfBracket = 2;  // the work, and the sweep after it

/// Stand round the work, on a session of RangeMode::pushed that has been started and a device that has
/// nothing else to do. @param number tells the ranges of one piece of work from those of another
/// @param warm_up enqueues what is to leave its lines in L2 before the work begins
void open_bracket(CounterSession& session, const DriverLibrary& driver, const EvictionSweep& sweep,
                  std::size_t number, const std::function<void(CUstream)>& warm_up = {});
void close_bracket(CounterSession& session, const DriverLibrary& driver, const EvictionSweep& sweep,
                   std::size_t number);

/// Name of the range of the work of that number.
std::string range_of_work(std::size_t number);

/// Adds counters and metrics of the work of that number to `kernel`. After a cold start dram_write_bytes is
/// made whole: the sweep after the work writes nothing itself, so what is written back then is the work's.
/// After a warm one it stays what was written during the work, lines that its warm-up left dirty included:
/// what the same work again and again writes each time. @returns false if the ranges hold no such work
bool read_bracket(const std::vector<RangeValues>& ranges, const std::vector<std::string>& counters,
                  const MetricChoice& choice, std::size_t number, KernelMeasurement& kernel,
                  L2State l2 = L2State::cold);

/// Counters by CUPTI's name.
CounterValues by_name(const std::vector<std::string>& counters, const RangeValues& range);

/// Measures work of this process.
class BracketedCounters {
 public:
  /// @param metrics as choose_metrics takes them
  /// @throws CountersUnavailable, CuptiError, UnknownMetric, MachineLacks
  BracketedCounters(std::shared_ptr<const CuptiLibrary> cupti, const DeviceContext& device,
                    const std::string& metrics, L2State l2 = L2State::cold);

  /// Times that measure() runs the work.
  int passes() const { return session_.passes(); }
  const std::string& chip() const { return counters_of_.chip; }
  /// What was asked for, as this chip can count it.
  const MetricChoice& choice() const { return choice_; }

  /// Runs `work`, which enqueues kernels on the given stream and must do the same each time, once a pass.
  /// @param prepare  makes again what the work finds and changes; not counted, and before L2 is swept, or
  /// after the work that warms it
  KernelMeasurement measure(const std::string& name, const std::function<void(CUstream)>& work,
                            const std::function<void(CUstream)>& prepare = {});

 private:
  std::shared_ptr<const DriverLibrary> driver_;
  CounterDevice counters_of_;
  L2State l2_;
  MetricChoice choice_;
  CounterSession session_;
  EvictionSweep sweep_;
};

}  // namespace tilescope
