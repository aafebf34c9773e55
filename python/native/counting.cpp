// SPDX-License-Identifier: Apache-2.0
// Hardware counters round what Python launches.
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/records/run_record.hpp"
#include "profiler/counters/block_counters.hpp"
#include "profiler/injection/launch_counters.hpp"
#include "profiler/records/kernel_record.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "profiler/timing/timeline.hpp"
#include "profiler/work_profiler.hpp"
#include "python/native/bindings.hpp"

namespace tilescope::python {
namespace {

/// One block after the other, each with a measurement of its own or with one for each kernel in it.
class BlockCount {
 public:
  /// @param l2 "cold" or "warm" @param by "block" or "kernel" @param filter regular expression on kernels'
  /// names
  /// @throws BadInput, MachineLacks
  BlockCount(const std::string& metrics, int device, const std::string& l2, const std::string& by,
             const std::string& filter);
  void open() { block_ ? block_->open() : launches_->open(); }
  void close(const std::string& name);
  /// What was counted so far, of schema tilescope.kernels/1.
  std::string record(const std::vector<std::string>& argv) const;
  /// The libcupti that counts; empty by kernel.
  std::string library() const { return block_ ? block_->library() : ""; }

 private:
  std::optional<BlockCounters> block_;
  std::optional<LaunchCounters> launches_;
  KernelRecord record_;
};

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

/// The counters of `work`, and its times where they are asked for.
KernelMeasurement measured(WorkProfiler& profiler, const std::string& name, int launches, bool time,
                           const std::function<void()>& work) {
  const auto on_any_stream = [&work](CUstream_st*) { work(); };
  if (time) {
    const WorkMeasurement all = profiler.measure(name, on_any_stream, launches);
    KernelMeasurement kernel = all.kernel;
    kernel.time = KernelTime{all.time.samples_s};
    return kernel;
  }
  std::vector<KernelMeasurement> counted;
  for (int i = 0; i < launches; ++i) counted.push_back(profiler.count(name, on_any_stream));
  return median_of_launches(counted);
}

/// Runs `work`, which does the same each time, once for each pass of the counters and, of `launches`, as
/// often as that; unless counters alone are wanted, many times for its time.
std::string measure(const std::vector<std::string>& argv, const std::string& name, const std::string& metrics,
                    const std::string& l2, int device, int launches, bool time,
                    const std::function<void()>& work) {
  WorkProfiler profiler(metrics, {.l2 = parse_l2_state(l2)}, device);
  KernelMeasurement kernel = measured(profiler, name, launches, time, work);
  kernel.name = name;
  KernelRecord record;
  record.argv = argv;
  record.when = utc_now();
  record.metrics = metrics;
  record.complete = true;
  record.collections = {{.device = profiler.device(),
                         .chip = profiler.chip(),
                         .driver = profiler.driver(),
                         .replay = profiler.passes() > 1 ? "application" : "none",
                         .passes = profiler.passes(),
                         .l2 = l2}};
  record.kernels = {kernel};
  return to_json_text(record);
}

/// What device 0 does while `work` runs, sampled: a JSON object with a list for each quantity.
/// @param interval_s from 1e-5 to 1
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

}  // namespace

void bind_counting(nb::module_& module) {
  nb::class_<BlockCount>(module, "BlockCount")
      .def(nb::init<const std::string&, int, const std::string&, const std::string&, const std::string&>(),
           "metrics"_a, "device"_a, "l2"_a, "by"_a, "filter"_a)
      .def("open", &BlockCount::open, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &BlockCount::close, "name"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("record", &BlockCount::record, "argv"_a)
      .def("library", &BlockCount::library);
  module.def("measure", &measure, "argv"_a, "name"_a, "metrics"_a, "l2"_a, "device"_a, "launches"_a, "time"_a,
             "work"_a);
  module.def("timeline", &timeline, "interval_s"_a, "work"_a);
}

}  // namespace tilescope::python
