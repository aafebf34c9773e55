// SPDX-License-Identifier: Apache-2.0
#include "python/native/counting.hpp"

#include "analysis/records/run_record.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope::python {

BlockCount::BlockCount(const std::string& metrics, int device, const std::string& l2)
    : counters_(metrics, device, parse_l2_state(l2)) {
  record_.when = utc_now();
  record_.metrics = metrics;
  record_.complete = true;
  record_.collections = {counters_.facts()};
}

std::string BlockCount::record(const std::vector<std::string>& argv) const {
  KernelRecord record = record_;
  record.argv = argv;
  return to_json_text(record);
}

std::string measure(const std::vector<std::string>& argv, const std::string& name, const std::string& metrics,
                    const std::string& l2, int launches, const std::function<void()>& work) {
  WorkProfiler profiler(metrics, {.l2 = parse_l2_state(l2)});
  WorkMeasurement measured = profiler.measure(
      name, [&work](CUstream_st*) { work(); }, launches);
  KernelMeasurement kernel = measured.kernel;
  kernel.name = name;
  kernel.time = KernelTime{measured.time.samples_s};
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

}  // namespace tilescope::python
