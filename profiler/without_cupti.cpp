// SPDX-License-Identifier: Apache-2.0
// Stands in for everything that needs CUPTI's headers in a build made without them.
#include "common/errors.hpp"
#include "profiler/counters/block_counters.hpp"
#include "profiler/counters/metric_catalogue.hpp"
#include "profiler/injection/launch_counters.hpp"
#include "profiler/timing/timeline.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope {
namespace {

[[noreturn]] void refuse() {
  throw MachineLacks(
      "this build knows no hardware counters: CUPTI's headers were not found when it was configured; install "
      "the CUDA toolkit and build again");
}

}  // namespace

struct MetricCatalogue::State {};

MetricCatalogue::MetricCatalogue(const std::string&) { refuse(); }
MetricCatalogue::~MetricCatalogue() = default;
MetricCatalogue::MetricCatalogue(MetricCatalogue&&) noexcept = default;
std::vector<std::string> MetricCatalogue::chips() { refuse(); }
const std::string& MetricCatalogue::chip() const { refuse(); }
const std::vector<std::string>& MetricCatalogue::base_names() const { refuse(); }
bool MetricCatalogue::has(const std::string&) const { refuse(); }
std::string MetricCatalogue::description(const std::string&) const { refuse(); }
int MetricCatalogue::passes(const std::vector<std::string>&) const { refuse(); }

Timeline sample_timeline(double, const std::function<void()>&) { refuse(); }

struct BlockCounters::State {};

BlockCounters::BlockCounters(const std::string&, int, L2State) { refuse(); }
BlockCounters::~BlockCounters() = default;
void BlockCounters::open() { refuse(); }
KernelMeasurement BlockCounters::close(const std::string&) { refuse(); }
CollectionFacts BlockCounters::facts() const { refuse(); }
std::string BlockCounters::library() const { refuse(); }

struct LaunchCounters::State {};

LaunchCounters::LaunchCounters(const std::string&, int, L2State, const std::string&) { refuse(); }
LaunchCounters::~LaunchCounters() = default;
void LaunchCounters::open() { refuse(); }
Events LaunchCounters::close() { refuse(); }

struct WorkProfiler::State {};

WorkProfiler::WorkProfiler(const std::string&, const TimerOptions&, int) { refuse(); }
WorkProfiler::~WorkProfiler() = default;
std::string WorkProfiler::device() const { refuse(); }
std::string WorkProfiler::chip() const { refuse(); }
std::string WorkProfiler::driver() const { refuse(); }
int WorkProfiler::passes() const { refuse(); }
std::string WorkProfiler::missing_metrics() const { refuse(); }
WorkMeasurement WorkProfiler::measure(const std::string&, const std::function<void(CUstream_st*)>&, int,
                                      const std::function<void(CUstream_st*)>&) {
  refuse();
}
KernelMeasurement WorkProfiler::count(const std::string&, const std::function<void(CUstream_st*)>&,
                                      const std::function<void(CUstream_st*)>&) {
  refuse();
}

}  // namespace tilescope
