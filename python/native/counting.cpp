// SPDX-License-Identifier: Apache-2.0
#include "python/native/counting.hpp"

#include <nlohmann/json.hpp>

#include "analysis/records/run_record.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "profiler/timing/timeline.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope::python {

BlockCount::BlockCount(const std::string& metrics, int device, const std::string& l2, const std::string& by,
                       const std::string& filter) {
  record_.when = utc_now();
  record_.metrics = metrics;
  record_.complete = true;
  if (by == "kernel") {
    launches_.emplace(metrics, device, parse_l2_state(l2), filter);
  } else {
    block_.emplace(metrics, device, parse_l2_state(l2));
    record_.collections = {block_->facts()};
  }
}

void BlockCount::open() { block_ ? block_->open() : launches_->open(); }

void BlockCount::close(const std::string& name) {
  if (block_) {
    record_.kernels.push_back(block_->close(name));
    return;
  }
  Events events = launches_->close();
  record_.complete = events.unfinished == 0;
  record_.collections = std::move(events.collections);
  record_.messages = std::move(events.messages);
  record_.kernels = std::move(events.kernels);
}

std::string BlockCount::record(const std::vector<std::string>& argv) const {
  KernelRecord record = record_;
  record.argv = argv;
  return to_json_text(record);
}

namespace {

/// The counters of what the request names, and its times where it asks for them.
KernelMeasurement measured(WorkProfiler& profiler, const MeasureRequest& request,
                           const std::function<void()>& work) {
  const auto on_any_stream = [&work](CUstream_st*) { work(); };
  if (request.time) {
    const WorkMeasurement all = profiler.measure(request.name, on_any_stream, request.launches);
    KernelMeasurement kernel = all.kernel;
    kernel.time = KernelTime{all.time.samples_s};
    return kernel;
  }
  std::vector<KernelMeasurement> counted;
  for (int i = 0; i < request.launches; ++i) counted.push_back(profiler.count(request.name, on_any_stream));
  return median_of_launches(counted);
}

}  // namespace

std::string measure(const MeasureRequest& request, const std::function<void()>& work) {
  WorkProfiler profiler(request.metrics, {.l2 = parse_l2_state(request.l2)}, request.device);
  KernelMeasurement kernel = measured(profiler, request, work);
  kernel.name = request.name;
  KernelRecord record;
  record.argv = request.argv;
  record.when = utc_now();
  record.metrics = request.metrics;
  record.complete = true;
  record.collections = {{.device = profiler.device(),
                         .chip = profiler.chip(),
                         .driver = profiler.driver(),
                         .replay = profiler.passes() > 1 ? "application" : "none",
                         .passes = profiler.passes(),
                         .l2 = request.l2}};
  record.kernels = {kernel};
  return to_json_text(record);
}

std::string timeline(double interval_s, const std::function<void()>& work) {
  const Timeline timeline = sample_timeline(interval_s, work);
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (const TimelineSample& sample : timeline.samples) {
    samples.push_back({{"start_s", sample.start_s},
                       {"length_s", sample.length_s},
                       {"dram_read_bytes", sample.dram_read_bytes},
                       {"dram_write_bytes", sample.dram_write_bytes},
                       {"dram_read_share", sample.dram_read_share},
                       {"dram_write_share", sample.dram_write_share},
                       {"tensor_share", sample.tensor_share},
                       {"sm_active_share", sample.sm_active_share}});
  }
  return nlohmann::ordered_json{{"device", timeline.device},
                                {"chip", timeline.chip},
                                {"interval_s", timeline.interval_s},
                                {"overflowed", timeline.overflowed},
                                {"samples", samples}}
      .dump();
}

}  // namespace tilescope::python
