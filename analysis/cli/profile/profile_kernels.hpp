// SPDX-License-Identifier: Apache-2.0
// `tilescope profile --kernel gpu:...`: TileScope's own kernels, pass by pass, in this process.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/verify/rows_before.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope::cli {

struct ProfileKernelOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  std::string machine = "h200";                // the model that simulates and bounds
  bool closed_form_only = false;               // no simulation
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

}  // namespace tilescope::cli
