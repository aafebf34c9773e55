// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate_job.hpp"

#include <fmt/format.h>

#include "analysis/counts/closed_form.hpp"

namespace tilescope::cli {

namespace {

bool takes(const Kernel& kernel, const AttentionProblem& problem, const KernelOptions& choices) {
  try {
    const ProgramOptions options = choices.program_options(kernel, problem);
    return !kernel.refusal(problem, Direction::forward, options) &&
           !kernel.refusal(problem, Direction::backward, options);
  } catch (const BadInput&) {  // a choice that it does not offer
    return false;
  }
}

}  // namespace

const Kernel& default_kernel(const Machine& machine, const AttentionProblem& problem,
                             const KernelOptions& choices) {
  const Kernel* best = nullptr;
  for (const Kernel* kernel : all_kernels()) {
    if (kernel->algorithm != Algorithm::flash2 || !machine.knows_progress_of(kernel->name)) continue;
    if (best != nullptr && best->rung >= kernel->rung) continue;
    if (takes(*kernel, problem, choices)) best = kernel;
  }
  return best != nullptr ? *best : find_kernel("cpu:flash2");
}

SimulateJob plan_job(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     const std::vector<Direction>& directions, const Machine& machine) {
  for (const Direction direction : directions) {
    require_supported(kernel, problem, direction, options);
    useful_flops(problem, direction);  // refuses what overflows, as below
  }
  SimulateJob job{&kernel, problem, &machine, plan_passes(kernel, problem, directions, options, machine)};
  for (const PlannedPass& pass : job.passes) executed_flops(pass.program);
  return job;
}

RunEntry replay(const SimulateJob& job, SimulationOptions options, const CommandContext& context) {
  constexpr std::int64_t kSteps = 200;
  std::int64_t ctas = 0, retired = 0;
  for (const PlannedPass& pass : job.passes) ctas += pass.program.num_ctas();
  Progress progress(context, fmt::format("replaying {}", job.kernel->name), kSteps);
  options.on_retired = [&] {
    const std::int64_t before = retired * kSteps / ctas;
    ++retired;
    for (std::int64_t step = before; step < retired * kSteps / ctas; ++step) progress.step();
  };
  return simulate_run(*job.kernel, job.problem, job.passes, *job.machine, options);
}

}  // namespace tilescope::cli
