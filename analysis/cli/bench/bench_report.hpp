// SPDX-License-Identifier: Apache-2.0
// What `bench` timed: its tables, its part of the record, and its rates: of forward, of backward, and of both
// together; as CSV, and drawn against length.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "analysis/studies/drawn_problems.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"

namespace tilescope::cli {

/// A direction of a run, or both together.
struct BenchRate {
  std::optional<Direction> direction;  // none: both
  const PassRecord* pass = nullptr;    // of a direction
  double median_s = 0;                 // of both: the sum of the two medians
  double paper_flops_per_second = 0;   // by the papers' count
  double useful_flops_per_second = 0;  // over the visible pairs

  /// "forward", "backward" or "forward+backward".
  std::string what() const;
};
/// Of the passes with times; both together where the run has both.
std::vector<BenchRate> bench_rates(const RunEntry& run);
/// The timed pass of that direction, or null.
const PassRecord* pass_of(const RunEntry& run, Direction direction);
/// Of a direction, by the papers' count. [FLOP/s]
double paper_rate(const AttentionProblem& problem, const PassRecord& pass);

/// A row a rate, behind one with the columns' names. `passes`, `tile` and what follows up to `samples` are of
/// a direction, empty in rows of both; `fp8_sums` is given in fp8 alone; `ordered`: --backward ordered.
std::string bench_csv(const RunRecord& record);

/// A figure with a panel for each kind of problem (all but its batch and length) and rate, a line a kernel.
std::string bench_plot(const RunRecord& record);
/// @throws BadInput unless a kind of problem has two lengths, and where `path` cannot be written
void require_plottable(const std::vector<BenchmarkCase>& cases, const std::string& path);

struct BenchReport {
  std::string text;            // tables for people
  std::vector<RunEntry> runs;  // one a kernel and problem
};

BenchReport cpu_report(const std::vector<BenchmarkCase>& cases, const BenchmarkResults& results,
                       const BenchmarkSettings& settings);
/// @throws MachineLacks if no case has a sample
BenchReport device_report(const std::vector<BenchmarkCase>& cases, const DeviceBenchmarkResults& results);

/// A row a stratum: the geometric mean of the rate over the best peer's, and the worst problem.
std::string strata_table(const std::vector<Stratum>& strata);

/// The direction as one pass of the record, since its launches are not timed apart: "delta+dkdvdq+convert".
PassRecord timed_pass(const BenchmarkCase& c, const std::vector<double>& samples_s);

}  // namespace tilescope::cli
