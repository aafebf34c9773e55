// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/context_counters.hpp"

#include <algorithm>

namespace tilescope {
namespace {

constexpr int kLaunchesHeldBack = 128;  // memory stays bounded, and a crash loses no more than these
constexpr int kRangesPerLaunch = 3;     // of a bracketed launch: before, the kernel, after
constexpr int kGraphRanges = 2048;      // kernels of one graph that can be told apart

std::string driver_version(const DriverLibrary& driver) {
  int version = 0;
  TILESCOPE_DRIVER_CALL(driver, cuDriverGetVersion, &version);
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The kernel's metrics, with its DRAM writes made whole: the sweep after it writes nothing itself, so what
/// is written back then is the kernel's, but for a background that the sweep before it shows.
std::map<std::string, double> bracket(const std::map<std::string, double>& before,
                                      std::map<std::string, double> kernel,
                                      const std::map<std::string, double>& after) {
  const char* const name = "dram_write_bytes";
  if (kernel.count(name) && before.count(name) && after.count(name)) {
    kernel[name] += after.at(name) - before.at(name);
  }
  return kernel;
}

std::string device_name(const DriverLibrary& driver, CUdevice device) {
  char name[256] = {};
  TILESCOPE_DRIVER_CALL(driver, cuDeviceGetName, name, sizeof name, device);
  return name;
}

}  // namespace

ContextCounters::ContextCounters(std::shared_ptr<const CuptiLibrary> cupti,
                                 std::shared_ptr<const DriverLibrary> driver, CUcontext context,
                                 const std::string& metrics, Sink sink)
    : cupti_(std::move(cupti)), driver_(std::move(driver)), context_(context), sink_(std::move(sink)) {
  CUdevice device = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxGetDevice, &device);
  device_ = CounterDevice::probe(*cupti_, context, device);
  choice_ = choose_metrics(metrics, MetricCatalogue(device_.chip));
  if (choice_.counters.empty()) throw MachineLacks(device_.chip + " has none of the counters of " + metrics);
  const int passes = CounterConfig(cupti_, device_.chip, choice_.counters, device_.availability).passes();
  session_ = std::make_unique<CounterSession>(
      cupti_, context, device_, choice_.counters, passes == 1 ? RangeMode::pushed : RangeMode::every_kernel,
      passes == 1 ? kLaunchesHeldBack * kRangesPerLaunch : kGraphRanges);
  facts_ = {device_name(*driver_, device), device_.chip, driver_version(*driver_),
            passes == 1 ? "none" : "kernel", passes};
}

CollectionFacts ContextCounters::facts() const { return facts_; }

std::string ContextCounters::missing_metrics() const {
  std::string names;
  for (const Metric* metric : choice_.missing)
    names += (names.empty() ? "" : ", ") + std::string(metric->name);
  return names;
}

void ContextCounters::start() {
  if (running_) return;
  session_->start();
  running_ = true;
}

void ContextCounters::sweep(const std::string& range) {
  if (!range.empty()) session_->push(range);
  read_sweep_->enqueue(nullptr);
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  if (!range.empty()) session_->pop();
}

void ContextCounters::before(std::vector<LaunchedKernel> kernels) {
  // A graph's kernels are named by their number alone, so that no neighbour may share their batch.
  if (kernels.size() > 1) flush();
  if (!bracketed()) {
    latest_ = kernels.size();
    pending_.insert(pending_.end(), kernels.begin(), kernels.end());
    return start();
  }
  latest_ = 1;
  if (kernels.size() > 1)
    kernels.front().kernel.name = "graph of " + std::to_string(kernels.size()) + " kernels";
  kernels.front().wanted = true;
  pending_.push_back(std::move(kernels.front()));
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  if (!read_sweep_) read_sweep_ = std::make_unique<ReadSweep>(driver_);
  const std::string number = std::to_string(pending_.size() - 1);
  sweep("");
  start();
  sweep("before" + number);
  session_->push("kernel" + number);
}

void ContextCounters::after(bool launched) {
  if (bracketed()) {
    TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
    session_->pop();
    sweep("after" + std::to_string(pending_.size() - 1));
  } else if (!launched) {
    pending_.resize(pending_.size() - latest_);
  }
  if (latest_ > 1 || pending_.size() >= kLaunchesHeldBack) flush();
}

void ContextCounters::pause() {
  // Bracketed ranges end with their kernel; a replaying session would go on to the next.
  if (running_ && !bracketed()) flush();
}

void ContextCounters::flush() {
  if (!running_) return;
  running_ = false;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  session_->stop();
  const std::vector<RangeValues> ranges = session_->collect();
  bracketed() ? emit_bracketed(ranges) : emit_replayed(ranges);
  pending_.clear();
}

CounterValues ContextCounters::by_name(const RangeValues& range) const {
  CounterValues values;
  for (std::size_t i = 0; i < range.values.size(); ++i) values[session_->counters()[i]] = range.values[i];
  return values;
}

void ContextCounters::abandon() {
  for (const LaunchedKernel& launched : pending_) emit(launched);
  lost_ += static_cast<std::int64_t>(pending_.size());
  pending_.clear();
  running_ = false;
}

void ContextCounters::emit(const LaunchedKernel& launched) const {
  if (launched.wanted) sink_(launched.kernel);
}

void ContextCounters::emit_replayed(const std::vector<RangeValues>& ranges) {
  const bool aligned = ranges.size() == pending_.size();
  if (!aligned) lost_ += static_cast<std::int64_t>(pending_.size());
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    KernelMeasurement& kernel = pending_[i].kernel;
    if (aligned) {
      kernel.counters = by_name(ranges[i]);
      kernel.measured = choice_.evaluate(kernel.counters);
      // What replay saves and restores is written back in the middle of the kernel's own lines.
      kernel.measured.erase("dram_write_bytes");
    }
    emit(pending_[i]);
  }
}

void ContextCounters::emit_bracketed(const std::vector<RangeValues>& ranges) {
  std::map<std::string, std::map<std::string, double>> measured;
  for (const RangeValues& range : ranges) measured[range.name] = choice_.evaluate(by_name(range));
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    KernelMeasurement& kernel = pending_[i].kernel;
    const std::string number = std::to_string(i);
    const auto own = std::find_if(ranges.begin(), ranges.end(),
                                  [&](const RangeValues& range) { return range.name == "kernel" + number; });
    if (own != ranges.end()) {
      kernel.counters = by_name(*own);
      kernel.measured =
          bracket(measured["before" + number], measured["kernel" + number], measured["after" + number]);
    } else {
      ++lost_;
    }
    emit(pending_[i]);
  }
}

}  // namespace tilescope
