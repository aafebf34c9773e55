// SPDX-License-Identifier: Apache-2.0
// What `bench` times: the problems that its options name, on the kernels that take them.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"

namespace tilescope::cli {

/// --sweep NAME, a list of problems; or --sweep AXIS=VALUES, round the problem that other options name. Must
/// outlive the parsing.
class BenchSweepOption {
 public:
  void add_to(CLI::App& command);
  bool given() const { return !texts_.empty(); }
  /// The list that was named, or nothing. @throws BadInput where it stands beside another --sweep, or is none
  const BenchSweep* named() const;
  /// The axes; none where a list was named.
  SweepAxes axes() const;

 private:
  std::vector<std::string> texts_;
};

/// What is to be timed: a named list, a problem with axes, or, where neither is named, the list `otherwise`.
struct BenchSubjects {
  std::vector<SweepPoint> points;
  std::vector<std::string> kernels;  // unless --kernel names others
  bool own_type = false;             // kernels compute in a type of theirs where none was asked for
  bool sweeps = false;               // what a kernel refuses is left out
};
/// @throws BadInput
BenchSubjects bench_subjects(const BenchSweepOption& sweep, const ProblemOptions& problem,
                             const std::string& otherwise);

struct BenchPlan {
  std::vector<BenchmarkCase> cases;
  std::vector<std::string> left_out;  // of a sweep: kernel, direction and reason, each once
};

/// Kernel after kernel on each problem and direction. What a kernel of a sweep refuses is left out.
/// @param tiles  of tuned tiles, see KernelOptions
/// @throws BadInput where nothing is left
BenchPlan plan_bench(const BenchSubjects& subjects, const ProblemOptions& problem,
                     const KernelOptions& kernel, const std::string& tiles, int threads);

}  // namespace tilescope::cli
