// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "analysis/model/counts/closed_form.hpp"

namespace tilescope::cli {

namespace {

/// Why a kernel cannot do it, as half a sentence behind its name, or nothing if it can.
std::optional<std::string> hindrance(const Kernel& kernel, const std::vector<Machine>& machines,
                                     const AttentionProblem& problem,
                                     const std::vector<Direction>& directions, const KernelOptions& choices) {
  for (const Machine& machine : machines) {
    const std::optional<int> capability = machine.compute_capability();
    if (capability && !kernel.chips.has(*capability)) return "does not run on " + machine.name;
  }
  try {
    const ProgramOptions options = choices.program_options(kernel, problem);
    for (const Direction direction : directions) {
      if (auto refusal = kernel.refusal(problem, direction, options)) return refusal;
    }
  } catch (const BadInput& error) {  // a choice that it does not offer
    return fmt::format("refuses: {}", error.what());
  }
  return std::nullopt;
}

/// GPU kernels that could be simulated by default, the highest rung first.
std::vector<const Kernel*> measured_rungs(const std::vector<Machine>& machines) {
  const Machine default_machine = load_machine(kDefaultMachine);
  std::vector<const Kernel*> rungs;
  for (const Kernel* kernel : all_kernels()) {
    const auto knows = [kernel](const Machine& machine) { return machine.knows_progress_of(kernel->name); };
    if (kernel->algorithm != Algorithm::flash2 || kernel->rung == 0) continue;
    if (knows(default_machine) || std::any_of(machines.begin(), machines.end(), knows))
      rungs.push_back(kernel);
  }
  std::stable_sort(rungs.begin(), rungs.end(),
                   [](const Kernel* a, const Kernel* b) { return a->rung > b->rung; });
  return rungs;
}

}  // namespace

DefaultKernel default_kernel(const std::vector<Machine>& machines, const AttentionProblem& problem,
                             const std::vector<Direction>& directions, const KernelOptions& choices) {
  std::string reason = "it is the highest rung whose CTAs were measured";
  bool passed_over = false;
  for (const Kernel* kernel : measured_rungs(machines)) {
    const auto lack = hindrance(*kernel, machines, problem, directions, choices);
    if (!lack) return {kernel, reason};
    if (!std::exchange(passed_over, true)) reason = fmt::format("{} {}", kernel->name, *lack);
  }
  return {&find_kernel("cpu:flash2"), reason};
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

void simulate_side_by_side(std::size_t count, Progress& progress,
                           const std::function<void(std::size_t)>& simulate) {
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      simulate(i);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
#pragma omp critical
    progress.step();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tilescope::cli
