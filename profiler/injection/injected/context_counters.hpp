// SPDX-License-Identifier: Apache-2.0
// Counters for the launches of one CUDA context in somebody else's process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/bracketed_counters.hpp"
#include "profiler/injection/event_file.hpp"
#include "profiler/injection/profile_request.hpp"

namespace tilescope {

/// One kernel of a launch, and whether its measurement is wanted.
struct LaunchedKernel {
  KernelMeasurement kernel;
  bool wanted = true;
};

/// Collects in one of two ways. Counters that need several passes: CUPTI replays every kernel. Counters that
/// fit in one: each kernel runs once between eviction sweeps, which also shows what it leaves dirty in L2, so
/// that all its DRAM writes are seen and none of anybody else's; or, with a warm L2, without sweeps.
class ContextCounters {
 public:
  using Sink = std::function<void(const KernelMeasurement&)>;

  /// The context must be current. Kernels go to `sink` in order of launch, some time after they ran.
  /// @throws MachineLacks, CuptiError, UnknownMetric
  ContextCounters(std::shared_ptr<const CuptiLibrary> cupti, std::shared_ptr<const DriverLibrary> driver,
                  CUcontext context, const ProfileRequest& request, Sink sink);

  CollectionFacts facts() const;
  CUcontext context() const { return context_; }
  /// Metrics asked for that this chip has no counters for.
  std::string missing_metrics() const;

  /// Stands before and after a launch: one kernel, or those of a graph in its order.
  void before(std::vector<LaunchedKernel> kernels, bool graph);
  void after(bool launched);
  /// A launch that nobody wants comes next.
  void pause();
  /// Hands out all that is still held back. The context must be current.
  void flush();

  /// Hands out what is held back and gives the counters back, until the next launch: a device lends them to
  /// one context at a time.
  void suspend();

  /// Hands out what is held back, without counters.
  void abandon();

  /// Launches whose counters were lost because CUPTI saw another number of kernels than were launched.
  std::int64_t lost() const { return lost_; }
  /// Those of them that belong to graphs: seen on an H200, kernel replay counts none of a graph's kernels.
  std::int64_t lost_in_graphs() const { return lost_in_graphs_; }

 private:
  /// Keeps one part of the choice. @returns how many there are
  std::size_t choose_part(const MetricCatalogue& chip, std::int64_t part);
  void open_session(std::size_t launches);
  void start();
  void emit(const LaunchedKernel& launched) const;
  void emit_replayed(const std::vector<RangeValues>& ranges);
  void emit_graph(const RangeValues& range);
  void begin_range();
  void end_range();
  void emit_bracketed(const std::vector<RangeValues>& ranges);

  std::shared_ptr<const CuptiLibrary> cupti_;
  std::shared_ptr<const DriverLibrary> driver_;
  CUcontext context_;
  Sink sink_;
  CounterDevice device_;
  CollectionFacts facts_;
  MetricChoice choice_;
  std::unique_ptr<CounterSession> session_;
  std::unique_ptr<EvictionSweep>
      eviction_sweep_;  // made at the first launch: the driver allows no allocation earlier
  std::vector<LaunchedKernel> pending_;
  std::size_t latest_ = 0;  // of pending_, those of the launch that is under way
  bool latest_is_graph_ = false;
  bool bracketed_ = false;
  L2State l2_;
  bool running_ = false;
  std::int64_t lost_ = 0, lost_in_graphs_ = 0;
};

}  // namespace tilescope
