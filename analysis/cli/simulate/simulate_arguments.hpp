// SPDX-License-Identifier: Apache-2.0
// What `tilescope simulate` is asked for.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/shard.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/simulate/simulate_job.hpp"

namespace tilescope::cli {

/// As typed. Must outlive the parsing.
struct SimulateArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  Shard shard;
  GpuOptions gpus;
  std::optional<std::string> link_rate, flop_rate;
  std::string machine = kDefaultMachine;
  std::vector<std::string> compare;
  std::string pages = "contiguous";
  std::optional<std::string> l2_bytes, ctas_per_sm, sram_bytes;
  std::string record;
  bool closed_form_only = false;
  bool curve = false;
  bool detail = false;
  bool tune_bytes = false;
  bool dry_run = false;

  /// @param json  the file of --json, of which every part of a --shard writes its own
  void add_to(CLI::App& command, std::string& json);

  /// Attention as it is mostly run: in fp16, where neither a type is named nor a kernel, which has one.
  AttentionProblem simulated_problem() const;
  /// Those of --machine, with commas between them, and of --compare.
  std::vector<Machine> machines() const;
  /// @throws BadInput for what the machine cannot be
  SimulationOptions simulation_options(const Machine& machine) const;
};

}  // namespace tilescope::cli
