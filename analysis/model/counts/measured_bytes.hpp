// SPDX-License-Identifier: Apache-2.0
// A pass's bytes and metrics from counters of its launches.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// Medians over the launches, metric by metric, and how far DRAM reads ranged if there were several. What the
/// launches did not measure, or what is no number, is absent.
/// @param launches of the same pass with the same metrics, one or more
MeasuredBytes measured_bytes(const std::vector<KernelMeasurement>& launches);

/// Why the DRAM reads of a pass judge no model: a launch, its L2 cold, read less than it must, but for the
/// hundredth that counters and stray lines make. Nothing where none did.
std::optional<std::string> too_few_reads(const RunEntry& run, const PassRecord& pass);

/// The profiler's metrics of a pass by name, worked out again from the counters in its record: of those that
/// it has the counters of.
std::map<std::string, double> pass_metrics(const PassRecord& pass);

}  // namespace tilescope
