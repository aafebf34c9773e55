// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/bracketed_counters.hpp"

#include <algorithm>

namespace tilescope {
namespace {

// The first leaves some hundred kilobytes of older dirty lines standing, by L2's own rule of replacement.
constexpr int kSweepsToClean = 2;

constexpr int kPatience = 2;  // times as many passes as CUPTI announced

void run(const DriverLibrary& driver, const EvictionSweep& sweep) {
  sweep.enqueue(nullptr);
  TILESCOPE_DRIVER_CALL(driver, cuCtxSynchronize);
}

const RangeValues* find(const std::vector<RangeValues>& ranges, const std::string& name) {
  const auto range = std::ranges::find(ranges, name, &RangeValues::name);
  return range == ranges.end() ? nullptr : &*range;
}

}  // namespace

std::string range_of_work(std::size_t number) { return "work" + std::to_string(number); }

void open_bracket(CounterSession& session, const DriverLibrary& driver, const EvictionSweep& sweep,
                  std::size_t number, const std::function<void(CUstream)>& warm_up) {
  for (int i = 0; i < kSweepsToClean; ++i) run(driver, sweep);
  if (warm_up) {
    warm_up(nullptr);
    TILESCOPE_DRIVER_CALL(driver, cuCtxSynchronize);
  }
  session.push(range_of_work(number));
}

void close_bracket(CounterSession& session, const DriverLibrary& driver, const EvictionSweep& sweep,
                   std::size_t number) {
  TILESCOPE_DRIVER_CALL(driver, cuCtxSynchronize);
  session.pop();
  session.push("after" + std::to_string(number));
  run(driver, sweep);
  session.pop();
}

bool read_bracket(const std::vector<RangeValues>& ranges, const std::vector<std::string>& counters,
                  const MetricChoice& choice, std::size_t number, KernelMeasurement& kernel, L2State l2) {
  const RangeValues* work = find(ranges, range_of_work(number));
  const RangeValues* after = find(ranges, "after" + std::to_string(number));
  if (!work || (!after && l2 == L2State::cold)) return false;
  kernel.counters = by_name(counters, *work);
  kernel.measured = choice.evaluate(kernel.counters);
  const auto written = kernel.measured.find("dram_write_bytes");
  if (written != kernel.measured.end() && l2 == L2State::cold) {
    written->second += choice.evaluate(by_name(counters, *after)).at("dram_write_bytes");
  }
  return true;
}

CounterValues by_name(const std::vector<std::string>& counters, const RangeValues& range) {
  CounterValues values;
  for (std::size_t i = 0; i < counters.size(); ++i) values[counters[i]] = range.values[i];
  return values;
}

BracketedCounters::BracketedCounters(std::shared_ptr<const CuptiLibrary> cupti, const DeviceContext& device,
                                     const std::string& metrics, L2State l2)
    : driver_(device.driver()),
      counters_of_(CounterDevice::probe(*cupti, device.get(), device.device_index())),
      l2_(l2),
      choice_(choose_metrics(metrics, MetricCatalogue(counters_of_.chip))),
      session_(cupti, device.get(), counters_of_, choice_.counters, RangeMode::pushed, kRangesOfBracket),
      sweep_(driver_) {}

KernelMeasurement BracketedCounters::measure(const std::string& name,
                                             const std::function<void(CUstream)>& work,
                                             const std::function<void(CUstream)>& prepare) {
  const auto warm_up = [&](CUstream stream) {
    work(stream);
    if (prepare) prepare(stream);
  };
  bool all_passes = false;
  for (int pass = 0; !all_passes; ++pass) {
    if (pass == kPatience * session_.passes()) {
      throw CuptiError(0, "CUPTI announced " + std::to_string(session_.passes()) +
                              " passes and was not done after " + std::to_string(pass));
    }
    if (prepare) prepare(nullptr);
    session_.start();
    try {
      open_bracket(session_, *driver_, sweep_, 0,
                   l2_ == L2State::warm ? std::function<void(CUstream)>(warm_up) : nullptr);
      work(nullptr);
      close_bracket(session_, *driver_, sweep_, 0);
      all_passes = session_.stop();
    } catch (...) {
      session_.abandon();
      throw;
    }
  }
  KernelMeasurement kernel;
  kernel.name = name;
  if (!read_bracket(session_.collect(), session_.counters(), choice_, 0, kernel, l2_)) {
    throw CuptiError(0, "CUPTI returned no counters for " + name);
  }
  return kernel;
}

}  // namespace tilescope
