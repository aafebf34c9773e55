// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compare/kernel_runs.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/records/compare/kernel_group.hpp"

namespace tilescope {
namespace {

std::optional<std::int64_t> sum_of(const KernelGroup& group, const char* metric) {
  const auto mean = group.measured.find(metric);
  if (mean == group.measured.end()) return std::nullopt;
  return std::llround(mean->second * static_cast<double>(group.launches));
}

/// Seconds of all launches; nothing unless each was timed.
std::optional<TimeRecord> total_time(const KernelRecord& record, const KernelGroup& group) {
  TimeRecord time;
  for (const KernelMeasurement& kernel : record.kernels) {
    if (!group.holds(kernel)) continue;
    if (!kernel.time || kernel.time->samples_s.empty()) return std::nullopt;
    time.median_s += kernel.time->median_s();
    time.min_s += kernel.time->min_s();
  }
  time.samples_s = {time.median_s};
  return time;
}

}  // namespace

RunRecord runs_of(const KernelRecord& record) {
  RunRecord runs;
  runs.argv = record.argv;
  runs.when = record.when;
  for (const KernelGroup& group : group_launches(record.kernels)) {
    RunEntry run;
    run.kernel = fmt::format("{} [grid {}, block {}]", group.name, fmt::join(group.launch.grid, "x"),
                             fmt::join(group.launch.block, "x"));
    PassRecord pass;
    pass.name = "launches";
    pass.measured = MeasuredBytes{sum_of(group, "sm_l2_read_bytes"), sum_of(group, "sm_l2_write_bytes"),
                                  sum_of(group, "dram_read_bytes"), sum_of(group, "dram_write_bytes")};
    pass.time = total_time(record, group);
    run.passes = {pass};
    runs.runs.push_back(std::move(run));
  }
  return runs;
}

bool without_problem(const RunEntry& run) { return run.problem == AttentionProblem{}; }

}  // namespace tilescope
