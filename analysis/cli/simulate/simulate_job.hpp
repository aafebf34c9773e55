// SPDX-License-Identifier: Apache-2.0
// One kernel on one problem and machine, planned before anything is replayed: all are refused or none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/replay/simulate_run.hpp"

namespace tilescope::cli {

struct SimulateJob {
  const Kernel* kernel = nullptr;
  AttentionProblem problem;
  const Machine* machine = nullptr;
  std::vector<PlannedPass> passes;
};

/// What is simulated where no kernel was named: the highest rung of which the machine's file knows how its
/// CTAs get on and that takes the problem and the choices, or FlashAttention-2 as the CPU has it.
const Kernel& default_kernel(const Machine& machine, const AttentionProblem& problem,
                             const KernelOptions& choices);

/// @throws BadInput where a kernel refuses the problem in some direction, or counts overflow
SimulateJob plan_job(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     const std::vector<Direction>& directions, const Machine& machine);

/// With progress on a terminal.
RunEntry replay(const SimulateJob& job, SimulationOptions options, const CommandContext& context);

}  // namespace tilescope::cli
