// SPDX-License-Identifier: Apache-2.0
// What `tilescope bench` is told on the command line, the cases that it times, what becomes of their times,
// and how
// --tune chooses tiles.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/refusals.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/verify/sampled_rows.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/records/tile_table.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "analysis/studies/drawn_problems.hpp"
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
  bool drawn() const { return named() && named()->draw; }

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
  Refusals refusals;
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
  std::optional<std::string> threads, repetitions, seconds, rounds, rest, samples;
  bool peers = false, tune = false;
  std::string tune_file, csv, plot;
  std::string python = "python3";
};

/// What is judged of the cases before they are timed.
std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases);

/// @param steps  of the progress that is shown, 0: not known
/// A first interruption ends it after the groups that are whole.
DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context);

/// Leaves of `cases` those that were timed, and returns the others: kernel, direction and problem.
std::vector<std::string> take_missing(std::vector<BenchmarkCase>& cases, std::size_t timed);
/// Where an interruption came: ends as the signal would have, with what is kept.
/// @throws Interrupted
void end_if_interrupted(std::size_t missing, bool anything_kept);

/// Times every choice of the kernels and keeps the fastest; the exit code.
/// @throws BadInput for options that leave no choice; MachineLacks
int tune(BenchArguments& arguments, const DeviceBenchmarkSettings& settings, const CommandContext& context);

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
  Output text;                 // for people
  std::vector<RunEntry> runs;  // one a kernel and problem
};

BenchReport cpu_report(const std::vector<BenchmarkCase>& cases, const BenchmarkResults& results,
                       const BenchmarkSettings& settings);
/// What has no samples is added to `refusals`. @throws what a case was refused with, if none has a sample
BenchReport device_report(const std::vector<BenchmarkCase>& cases, const DeviceBenchmarkResults& results,
                          Refusals& refusals);

/// A row a stratum: the geometric mean of the rate over the best peer's, and the worst problem.
Table strata_table(const std::vector<Stratum>& strata);

/// The direction as one pass of the record, since its launches are not timed apart: "delta+dkdvdq+convert".
PassRecord timed_pass(const BenchmarkCase& c, const std::vector<double>& samples_s);

/// Why a choice is not timed.
enum class PruneReason { larger_than_problem, does_not_fit };
std::string_view to_string(PruneReason reason);

struct PrunedChoice {
  PassChoice choice;
  PruneReason reason = PruneReason::does_not_fit;
  std::string detail;  // "takes 144 KiB of shared memory a CTA ..."
};

/// A pass to be tuned on a problem: one case for each choice.
struct TuningTask {
  PassName pass = PassName::forward;
  std::vector<BenchmarkCase> cases;    // by candidate
  std::vector<PassChoice> candidates;  // the kernel's own choice first
  std::vector<PrunedChoice> pruned;
};

/// The passes of `kernel` that have a choice on `problem`. Choices that do not run on `chip` are pruned, and
/// tiles other than the kernel's own that are larger than the problem: rows beyond it are work for nothing.
std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem, const Chip& chip);

/// The fastest of a task's choices by the medians of its cases' samples; those without samples are no
/// candidates.
/// @throws MachineLacks if no case has samples
TileChoice choose_tile(const TuningTask& task, const std::vector<std::vector<double>>& samples_s,
                       const std::string& device);

/// One row a choice tried: which it was, its median, and whether it was chosen.
Table tuning_table(const std::vector<TileChoice>& choices);
/// "12 of 40 choices left out before timing: 8 larger than the problem, 4 do not fit the device".
std::string pruned_text(const std::vector<TuningTask>& tasks);
/// All of them, those left out too, with what became of each.
std::string tuning_csv(const std::vector<TuningTask>& tasks, const std::vector<TileChoice>& choices);

}  // namespace tilescope::cli
