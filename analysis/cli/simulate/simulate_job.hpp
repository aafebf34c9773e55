// SPDX-License-Identifier: Apache-2.0
// One kernel on one problem and machine, planned before anything is replayed: all are refused or none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/model/replay/simulate_run.hpp"

namespace tilescope::cli {

inline constexpr const char* kDefaultMachine = "h200";

struct SimulateJob {
  const Kernel* kernel = nullptr;
  AttentionProblem problem;
  const Machine* machine = nullptr;
  std::vector<PlannedPass> passes;
};

struct DefaultKernel {
  const Kernel* kernel = nullptr;
  std::string reason;  // half a sentence
};
/// What is simulated where no kernel was named, on every machine by the same rule: the highest rung of
/// FlashAttention-2 of which the default machine or one of `machines` knows how its CTAs get on, that runs on
/// all of them and takes the problem and the choices; else FlashAttention-2 as the CPU has it.
DefaultKernel default_kernel(const std::vector<Machine>& machines, const AttentionProblem& problem,
                             const std::vector<Direction>& directions, const KernelOptions& choices);

/// @throws BadInput where a kernel refuses the problem in some direction, or counts overflow
SimulateJob plan_job(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     const std::vector<Direction>& directions, const Machine& machine);

/// With progress on a terminal.
RunEntry replay(const SimulateJob& job, SimulationOptions options, const CommandContext& context);

/// Calls simulate(i) for all i below `count`, on all threads, with a step of `progress` for each.
/// @throws what one of them threw, when all have ended
void simulate_side_by_side(std::size_t count, Progress& progress,
                           const std::function<void(std::size_t)>& simulate);

}  // namespace tilescope::cli
