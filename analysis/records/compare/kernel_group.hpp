// SPDX-License-Identifier: Apache-2.0
// The launches of a command's kernels, one group for each kernel and geometry; a record of them as runs, so
// that two can be compared like any two records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// Launches of one kernel with one geometry. Metrics are means over them, by the profiler's names.
struct KernelGroup {
  std::string name;
  LaunchFacts launch;
  std::int64_t launches = 0;
  std::map<std::string, double> measured;

  bool holds(const KernelMeasurement& kernel) const {
    return kernel.name == name && kernel.launch.grid == launch.grid && kernel.launch.block == launch.block;
  }
  bool operator==(const KernelGroup&) const = default;
};

/// In the order of the first launch of each.
std::vector<KernelGroup> group_launches(std::span<const KernelMeasurement> kernels);

/// Of the medians of the group's launches; nothing where none was timed.
std::optional<double> median_seconds(std::span<const KernelMeasurement> kernels, const KernelGroup& group);

/// Of a counter, by CUPTI's name, over the group's launches that have it; nothing where none has.
std::optional<double> mean_counter(std::span<const KernelMeasurement> kernels, const KernelGroup& group,
                                   const std::string& counter);

/// A metric's mean, rounded; nothing where no launch has it.
std::optional<std::int64_t> metric_of(const KernelGroup& group, const std::string& metric);
/// A metric's mean as bytes, or a dash where no launch has it.
std::string mean_bytes_text(const KernelGroup& group, const std::string& metric);

/// A run for each kernel and geometry, in the order of their first launches, with one pass: bytes and times
/// are sums over all launches, so that one launch more counts too. Such a run has no problem.
RunRecord runs_of(const KernelRecord& record);

/// Whether runs_of() made it: no real problem has one query and one key.
bool without_problem(const RunEntry& run);

}  // namespace tilescope
