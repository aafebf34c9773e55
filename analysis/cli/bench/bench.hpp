// SPDX-License-Identifier: Apache-2.0
// What `tilescope bench` is told on the command line, and the cases that it times.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/verify/sampled_rows.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"
#include "profiler/benchmarks/peer_process.hpp"

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
  /// Of the list that was named; drawn ones by `seed`. @throws BadInput
  std::vector<AttentionProblem> problems(const BenchSweep& list, std::uint64_t seed) const;
  bool drawn() const { return named() && named()->name == "drawn"; }

 private:
  std::vector<std::string> texts_;
  std::optional<std::string> count_;
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

struct BenchArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  RowsBefore rows;
  BenchSweepOption sweep;
  GpuOptions gpus;
  std::optional<std::string> threads, repetitions, seconds, rounds, rest;
  bool peers = false, tune = false;
  std::string tune_file, csv, plot;
  std::string python = "python3";
};

/// What is judged of the cases before they are timed.
std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases);

/// @param steps  of the progress that is shown, 0: not known
DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context);

/// Times every choice of the kernels and keeps the fastest; the exit code.
/// @throws BadInput for options that leave no choice; MachineLacks
int tune(BenchArguments& arguments, const DeviceBenchmarkSettings& settings, const CommandContext& context);

}  // namespace tilescope::cli
