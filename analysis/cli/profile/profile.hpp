// SPDX-License-Identifier: Apache-2.0
// `tilescope profile`: of TileScope's own kernels, pass by pass, in this process; of every kernel that a
// command launches; of the device against time; and whether the counters can be believed.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/refusals.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/verify/sampled_rows.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/calibration/self_test.hpp"
#include "profiler/injection/profile_request.hpp"
#include "profiler/records/kernel_record.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope::cli {

struct ProfileKernelOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  std::string machine = "h200";                // the model that simulates and bounds
  bool closed_form_only = false;               // no simulation
  bool untimed = false;                        // no times
  std::optional<std::string> launches_text;    // of --launches, as it was typed
  std::optional<std::string> placements_text;  // of --placements
  bool cta_progress = false;                   // the steps of CTAs are timed instead
  RowsBefore rows;

  void add_to(CLI::App& command);
  /// Launches of each pass that counters are taken from. @throws BadInput unless in 1 ... 100
  int launches() const;
  /// Placements of pages at random, one launch each; 0: contiguous memory. @throws BadInput unless in 1 ...
  /// 100
  int placements() const;
  /// Whether anything asks for it.
  bool given() const { return kernel.given() || problem.given() || problem.pass_given() || sweep.given(); }
};

/// Measures every kernel on every problem, and writes one record of schema tilescope.run/1. Combinations of a
/// sweep that a kernel refuses, or that do not fit in device memory, are left out and named. Sampled rows of
/// all are judged before.
/// @param metrics as choose_metrics takes them @returns an ExitCode
/// @throws BadInput, MachineLacks without a device, libcupti or the permission to count
int profile_kernels(ProfileKernelOptions& options, const std::string& metrics, L2State l2,
                    const CommandContext& context);

/// Notes when the CTAs of every pass begin their steps, and writes how evenly they do.
/// @returns an ExitCode @throws BadInput, MachineLacks without a device or a step clock in the kernels
int profile_progress(ProfileKernelOptions& options, const CommandContext& context);

/// What runs each pass of every kernel and problem some times, without measuring it; nothing, where rows of
/// one are wrong. @throws BadInput, MachineLacks without a device
std::function<void()> kernels_in_turn(ProfileKernelOptions& options, const CommandContext& context);

/// One run to be measured.
struct Job {
  const GpuKernel* kernel;
  AttentionProblem problem;
  ProgramOptions options;
  std::vector<Direction> directions;
  std::vector<PlannedPass> passes;

  std::string title() const { return fmt::format("{} {}", kernel->row.name, describe(problem)); }
};

struct Plan {
  std::vector<Job> jobs;
  Refusals refusals;
};

/// Every kernel on every problem; combinations of a sweep that a kernel refuses are left out, with reasons.
/// @throws BadInput where no kernel is named, or nothing is left
Plan plan_jobs(const ProfileKernelOptions& arguments, const Machine& machine);

/// What is to be judged before, with the options that it is measured with.
std::vector<RowsJob> rows_jobs(const Plan& plan, const Machine& machine);

inline constexpr const char* kApplication = "application";
/// A command whose kernels wait for what cannot come would hold its device for ever. [seconds]
inline constexpr std::int64_t kTimeLimit_s = 1800, kMostTimeLimit_s = 366 * 86400;

struct CommandToMeasure {
  ProfileRequest request;
  std::vector<std::string> words;  // program and arguments
  std::string replay = "kernel";   // what is repeated for counters of several passes; or kApplication
  bool time = false;               // also times, of a run of their own
  std::int64_t time_limit_s = kTimeLimit_s;  // 0: none
};

/// Looks whether kernels can be counted, before a command runs for an hour for nothing.
/// @throws BadInput for choices that do not go together, MachineLacks without a driver
void require_countable(const CommandToMeasure& command);

/// Runs the command as often as its counters and times ask for.
KernelRecord measure(const CommandToMeasure& command, const CommandContext& context);

struct TimelineOptions {
  std::string plot;            // where the SVG goes; empty: no timeline is asked for
  double interval_us = 100.0;  // of a sample
  std::string samples;         // a record to plot instead of sampling; empty: none
};

/// Samples the device while `work` runs and writes the plot, and the record of schema tilescope.timeline/1
/// where --json says.
/// @throws BadInput before anything runs, MachineLacks
void profile_timeline(const TimelineOptions& options, const std::function<void()>& work,
                      const CommandContext& context);

/// Writes the plot of the record options.samples. @throws BadInput
void plot_timeline(const TimelineOptions& options, const CommandContext& context);

/// One line a kernel and grid: means over its launches, and then of the counters that were asked for by name.
Output kernel_table(const KernelRecord& record);
/// How it was measured, and what is missing.
std::string conclusion(const KernelRecord& record);
/// Prints declared against measured and writes the record. @returns the exit code
int report_self_test(const SelfTest& test, const CommandContext& context);

/// --compare and --ncu: records of kernels, and what Nsight Compute measured on the same command.
struct NcuArguments {
  std::vector<std::string> records, csv;  // paths
  bool given() const { return !records.empty() || !csv.empty(); }
};
/// Prints both side by side, of the kernels whose name `filter`, a regular expression, is found in.
int compare_with_ncu(const NcuArguments& arguments, const std::string& filter, const CommandContext& context);

/// A line for each pass and boundary, and for their sum: bytes, and what was measured over the closed form,
/// over the compulsory floor and, where the direction is whole, over the lower bound on `machine`. The run
/// has passes of that direction.
Table measured_table(const RunEntry& run, Direction direction, Algorithm algorithm, const Machine& machine);

/// The counters that `metrics`, as choose_metrics takes them, asks for by CUPTI's own names; empty where
/// there are none.
Output counter_table(const RunEntry& run, Direction direction, const std::string& metrics);

/// A line for each pass: time, rate and launch.
Table time_table(const RunEntry& run, Direction direction);

/// A line for each direction of each run.
Table sweep_table(const std::vector<RunEntry>& runs);

}  // namespace tilescope::cli
