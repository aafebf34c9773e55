// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compare/kernel_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "common/number_format.hpp"
#include "common/statistics.hpp"

namespace tilescope {

std::vector<KernelGroup> group_launches(std::span<const KernelMeasurement> kernels) {
  std::vector<KernelGroup> groups;
  std::vector<std::map<std::string, std::int64_t>> counts;
  for (const KernelMeasurement& kernel : kernels) {
    const auto same =
        std::ranges::find_if(groups, [&kernel](const KernelGroup& group) { return group.holds(kernel); });
    const std::size_t index = static_cast<std::size_t>(same - groups.begin());
    if (same == groups.end()) groups.push_back({kernel.name, kernel.launch, 0, {}}), counts.emplace_back();
    ++groups[index].launches;
    for (const auto& [name, value] : kernel.measured) {
      groups[index].measured[name] += value;
      ++counts[index][name];
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (auto& [name, value] : groups[i].measured) value /= static_cast<double>(counts[i][name]);
  }
  return groups;
}

std::optional<double> median_seconds(std::span<const KernelMeasurement> kernels, const KernelGroup& group) {
  std::vector<double> medians;
  for (const KernelMeasurement& kernel : kernels) {
    const bool timed = kernel.time && kernel.time->any();
    if (timed && group.holds(kernel)) medians.push_back(kernel.time->median_s());
  }
  if (medians.empty()) return std::nullopt;
  return median_of(medians);
}

std::optional<double> mean_counter(std::span<const KernelMeasurement> kernels, const KernelGroup& group,
                                   const std::string& counter) {
  double sum = 0;
  std::int64_t launches = 0;
  for (const KernelMeasurement& kernel : kernels) {
    const auto value = kernel.counters.find(counter);
    if (value == kernel.counters.end() || !group.holds(kernel)) continue;
    sum += value->second;
    ++launches;
  }
  if (launches == 0) return std::nullopt;
  return sum / static_cast<double>(launches);
}

std::optional<std::int64_t> metric_of(const KernelGroup& group, const std::string& metric) {
  const auto mean = group.measured.find(metric);
  if (mean == group.measured.end()) return std::nullopt;
  return std::llround(mean->second);
}

std::string mean_bytes_text(const KernelGroup& group, const std::string& metric) {
  const auto mean = group.measured.find(metric);
  return mean == group.measured.end() ? "-" : format_bytes(mean->second);
}

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
