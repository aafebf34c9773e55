// SPDX-License-Identifier: Apache-2.0
// What `bench` measured: its tables, and its part of the record.
#pragma once

#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"

namespace tilescope::cli {

struct BenchReport {
  std::string text;            // tables for people
  std::vector<RunEntry> runs;  // one a kernel and problem
};

BenchReport cpu_report(const std::vector<BenchmarkCase>& cases, const BenchmarkResults& results,
                       const BenchmarkSettings& settings);
/// @throws MachineLacks if no case has a sample
BenchReport device_report(const std::vector<BenchmarkCase>& cases, const DeviceBenchmarkResults& results);

/// The direction as one pass of the record, since its launches are not timed apart: "delta+dkdvdq+convert".
PassRecord timed_pass(const BenchmarkCase& c, const std::vector<double>& samples_s);

}  // namespace tilescope::cli
