// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/context_counters.hpp"

#include <algorithm>

#include "profiler/driver/device_context.hpp"

namespace tilescope {
namespace {

// Memory stays bounded and a crash loses no more launches than these; CUPTI needs longer to start for more
// ranges.
constexpr std::size_t kLaunchesHeldBack = 32;

std::string graph_name(std::size_t kernels) { return "graph of " + std::to_string(kernels) + " kernels"; }

}  // namespace

ContextCounters::ContextCounters(std::shared_ptr<const CuptiLibrary> cupti,
                                 std::shared_ptr<const DriverLibrary> driver, CUcontext context,
                                 const ProfileRequest& request, Sink sink)
    : cupti_(std::move(cupti)),
      driver_(std::move(driver)),
      context_(context),
      sink_(std::move(sink)),
      l2_(request.l2) {
  CUdevice device = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxGetDevice, &device);
  device_ = CounterDevice::probe(*cupti_, context, device);
  const MetricCatalogue chip(device_.chip);
  choice_ = choose_metrics(request.metrics, chip);
  if (choice_.counters.empty())
    throw MachineLacks(device_.chip + " has none of the counters of " + request.metrics);
  const std::size_t parts = request.part == ProfileRequest::kWhole ? 1 : choose_part(chip, request.part);
  const int passes = CounterConfig(cupti_, device_.chip, choice_.counters, device_.availability).passes();
  bracketed_ = passes == 1;
  open_session(kLaunchesHeldBack);
  const char* replay = parts > 1 ? "application" : bracketed_ ? "none" : "kernel";
  facts_ = {device_name(*driver_, device),
            device_.chip,
            driver_version(*driver_),
            replay,
            parts > 1 ? static_cast<int>(parts) : passes,
            bracketed_ ? std::string(to_string(l2_)) : "replayed"};
}

std::size_t ContextCounters::choose_part(const MetricCatalogue& chip, std::int64_t part) {
  std::vector<MetricChoice> parts = split_by_pass(choice_, chip);
  MetricChoice& chosen = parts.at(static_cast<std::size_t>(part));
  chosen.missing = std::move(choice_.missing);
  choice_ = std::move(chosen);
  return parts.size();
}

CollectionFacts ContextCounters::facts() const { return facts_; }

std::string ContextCounters::missing_metrics() const { return names_of_missing(choice_); }

void ContextCounters::open_session(std::size_t launches) {
  session_.reset();  // one at a time: CUPTI enables a context once
  const auto ranges = static_cast<int>(bracketed_ ? launches * kRangesOfBracket : launches);
  session_ =
      std::make_unique<CounterSession>(cupti_, context_, device_, choice_.counters,
                                       bracketed_ ? RangeMode::pushed : RangeMode::every_kernel, ranges);
}

void ContextCounters::start() {
  if (running_) return;
  if (!session_) open_session(kLaunchesHeldBack);
  session_->start();
  running_ = true;
}

void ContextCounters::before(std::vector<LaunchedKernel> kernels, bool graph) {
  // A graph's kernels are named by their number alone, so that no neighbour may share their batch.
  if (graph) flush();
  latest_is_graph_ = graph;
  if (!bracketed_) {
    latest_ = kernels.size();
    const bool fit = session_ && kernels.size() <= static_cast<std::size_t>(session_->max_ranges());
    if (!fit) open_session(std::max(kernels.size(), kLaunchesHeldBack));
    pending_.insert(pending_.end(), kernels.begin(), kernels.end());
    return start();
  }
  latest_ = 1;
  if (kernels.size() > 1) kernels.front().kernel.name = graph_name(kernels.size());
  kernels.front().wanted = true;
  pending_.push_back(std::move(kernels.front()));
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  start();
  begin_range();
}

void ContextCounters::after(bool launched) {
  if (bracketed_) {
    end_range();
  } else if (!launched) {
    pending_.resize(pending_.size() - latest_);
  }
  if (latest_is_graph_ || pending_.size() >= kLaunchesHeldBack) flush();
}

void ContextCounters::begin_range() {
  const std::size_t number = pending_.size() - 1;
  if (l2_ == L2State::warm) return session_->push(range_of_work(number));
  if (!eviction_sweep_) eviction_sweep_ = std::make_unique<EvictionSweep>(driver_);
  open_bracket(*session_, *driver_, *eviction_sweep_, number);
}

void ContextCounters::end_range() {
  if (l2_ == L2State::cold) return close_bracket(*session_, *driver_, *eviction_sweep_, pending_.size() - 1);
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  session_->pop();
}

void ContextCounters::pause() {
  // Bracketed ranges end with their kernel; a replaying session would go on to the next.
  if (running_ && !bracketed_) flush();
}

void ContextCounters::flush() {
  if (!running_) return;
  running_ = false;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);
  session_->stop();
  const std::vector<RangeValues> ranges = session_->collect();
  bracketed_ ? emit_bracketed(ranges) : emit_replayed(ranges);
  pending_.clear();
}

void ContextCounters::suspend() {
  if (!session_) return;
  const CurrentContext current(driver_, context_);
  flush();
  session_.reset();
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

void ContextCounters::emit_graph(const RangeValues& range) {
  KernelMeasurement graph = pending_.front().kernel;
  graph.name = graph_name(pending_.size());
  graph.counters = by_name(session_->counters(), range);
  graph.measured = choice_.evaluate(graph.counters);
  graph.measured.erase("dram_write_bytes");
  sink_(graph);
}

void ContextCounters::emit_replayed(const std::vector<RangeValues>& ranges) {
  // CUPTI may replay a graph as a whole.
  if (ranges.size() == 1 && pending_.size() > 1 && latest_is_graph_) return emit_graph(ranges.front());
  const bool aligned = ranges.size() == pending_.size();
  if (!aligned) {
    const auto launches = static_cast<std::int64_t>(pending_.size());
    lost_ += launches;
    if (latest_is_graph_) lost_in_graphs_ += launches;
  }
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    KernelMeasurement& kernel = pending_[i].kernel;
    if (aligned) {
      kernel.counters = by_name(session_->counters(), ranges[i]);
      kernel.measured = choice_.evaluate(kernel.counters);
      // What replay saves and restores is written back in the middle of the kernel's own lines.
      kernel.measured.erase("dram_write_bytes");
    }
    emit(pending_[i]);
  }
}

void ContextCounters::emit_bracketed(const std::vector<RangeValues>& ranges) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    KernelMeasurement& kernel = pending_[i].kernel;
    if (!read_bracket(ranges, session_->counters(), choice_, i, kernel, l2_)) ++lost_;
    // Lines that other kernels left dirty are written back during this one.
    if (l2_ == L2State::warm) kernel.measured.erase("dram_write_bytes");
    emit(pending_[i]);
  }
}

}  // namespace tilescope
