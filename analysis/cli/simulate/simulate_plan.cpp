// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/cli/expected_time.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/explain/program_text.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "analysis/records/files/text_file.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "gpu/registry/default_kernel.hpp"

namespace tilescope::cli {
namespace {

DefaultKernel default_of(const SimulateArguments& arguments, const AttentionProblem& problem,
                         const std::vector<Machine>& machines) {
  if (arguments.sram_bytes)
    return {&find_kernel("cpu:flash2"), "default with --sram-bytes, whose tile it takes"};
  std::vector<TargetMachine> targets;
  for (const Machine& machine : machines) targets.push_back({machine.name, machine.compute_capability()});
  return default_kernel(targets, problem, arguments.problem.directions(), [&](const Kernel& kernel) {
    return arguments.kernel.program_options(kernel, problem);
  });
}

}  // namespace

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

namespace {

bool on_split_l2(const SimulateJob& job, const SimulationOptions& how) {
  return job.machine->split_l2() && !how.l2_bytes;
}

bool adrift(const SimulateJob& job) { return job.machine->knows_progress_on(job.kernel->math_unit); }

/// On one core.
double seconds_of(const SimulateJob& job, const SimulationOptions& how) {
  return how.replay ? replay_seconds(job.passes, how.l2_curve, adrift(job), on_split_l2(job, how)) : 0;
}

/// By itself: launches of an L2 in two partitions stand side by side.
double seconds_alone(const SimulateJob& job, const SimulationOptions& how) {
  const auto launches = static_cast<int>(on_split_l2(job, how) && !adrift(job) ? kLaunchesReplayed : 1);
  return seconds_of(job, how) / std::min(launches, omp_get_max_threads());
}

}  // namespace

RunEntry replay(const SimulateJob& job, SimulationOptions options, const CommandContext& context) {
  constexpr std::int64_t kSteps = 200;
  std::int64_t ctas = 0, retired = 0;
  for (const PlannedPass& pass : job.passes) ctas += pass.program.num_ctas();
  Progress progress(context, fmt::format("replaying {}", job.kernel->name), kSteps);
  TimeOfParts time(context, fmt::format("the replay of {}", job.kernel->name), std::vector(kSteps, 1.0),
                   seconds_alone(job, options));
  options.on_retired = [&] {
    const std::int64_t before = retired * kSteps / ctas;
    ++retired;
    for (std::int64_t step = before; step < retired * kSteps / ctas; ++step) {
      progress.step();
      time.step();
    }
  };
  return simulate_run(*job.kernel, job.problem, job.passes, *job.machine, options);
}

void simulate_side_by_side(std::size_t count, Progress& progress,
                           const std::function<void(std::size_t)>& simulate) {
  parallel_for_each(static_cast<std::int64_t>(count), [&](std::int64_t i) {
    simulate(static_cast<std::size_t>(i));
#pragma omp critical(simulate_progress)
    progress.step();
  });
}

namespace {

/// The tile of FlashAttention's Algorithm 1, line 1, for the on-chip memory of --sram-bytes.
struct PaperTile {
  TileShape tile;
  std::string remark;
};
std::optional<PaperTile> paper_tile(const SimulateArguments& arguments, const AttentionProblem& problem,
                                    const Machine& machine, bool name_machine) {
  if (!arguments.sram_bytes) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const bool of_machine = *arguments.sram_bytes == "machine";
  const std::int64_t sram_bytes = of_machine ? machine.shared_bytes_per_cta.value
                                             : parse_bytes_in("sram-bytes", *arguments.sram_bytes, 1, kMost);
  const std::int64_t m = std::max<std::int64_t>(1, sram_bytes / element_bytes(problem.dtype));
  const TileShape tile = flash1_tile_rule(m, problem.head_dim);
  const std::int64_t needed = flash1_sram_elements_needed(tile, problem.head_dim);
  return PaperTile{
      tile, fmt::format(
                "{}tile {}x{} by the paper's rule for M = {} elements: Q, O, K, V and S take {}, {}\n",
                of_machine && name_machine ? machine.name + ": " : "", tile.block_m, tile.block_n, m, needed,
                needed <= m ? "which fits" : "MORE than M (the rule is asymptotic; it fits from M = 8 d^2)")};
}

/// --program: the passes of a text, under its file's name.
SimulateJob program_job(const std::string& path, const AttentionProblem& problem,
                        const std::vector<Direction>& directions, const Machine& machine) {
  if (problem.score_mods.any())
    throw BadInput("program", path, "must stand without modifiers of scores, which its text does not tell");
  const ProgramText text = parse_program_text(path, read_text_file(path));
  const auto kernel = std::make_shared<ProgramKernel>();
  kernel->name = path.substr(path.rfind('/') + 1);
  kernel->row = find_kernel("cpu:flash2");
  kernel->row.name = kernel->name;
  SimulateJob job{&kernel->row, problem, &machine, {}, kernel};
  for (const Direction direction : directions) {
    for (TileProgram& program : text.programs(direction, problem)) {
      executed_flops(program);  // refuses what overflows
      job.passes.push_back({direction, std::move(program)});
    }
  }
  return job;
}

}  // namespace

ChosenKernels chosen_kernels(const SimulateArguments& arguments, const AttentionProblem& problem,
                             const std::vector<Machine>& machines) {
  if (arguments.kernel.given()) return {arguments.kernel.kernels({}), ""};
  if (!arguments.program.empty()) return {};
  const DefaultKernel chosen = default_of(arguments, problem, machines);
  return {{chosen.kernel}, wrapped(fmt::format("kernel {}, {}", chosen.kernel->name, chosen.reason))};
}

namespace {

/// Adds the runs of a point of the sweep, or why there are none.
void plan_point(const SimulateArguments& arguments, const SweepPoint& point,
                const std::vector<Machine>& machines, SimulatePlan& plan) {
  const auto remark = [&plan](const std::string& line) {
    if (plan.remarks.find(line) == std::string::npos) plan.remarks += line;
  };
  ChosenKernels chosen;
  if (!plan.refusals.allow("", "", [&] {
        if (point.refusal) std::rethrow_exception(point.refusal);
        chosen = chosen_kernels(arguments, point.problem, machines);
      }))
    return;
  AttentionProblem problem = point.problem;
  if (!arguments.sweep.sets("dtype")) problem = arguments.problem.in_type_of(chosen.kernels, problem);
  const std::string where = describe(problem);
  const std::vector<Direction> directions = arguments.problem.directions();
  for (const Machine& machine : machines) {
    if (!arguments.program.empty()) {
      plan.refusals.allow(arguments.program, where, [&] {
        plan.jobs.push_back(program_job(arguments.program, problem, directions, machine));
      });
    }
    const std::optional<PaperTile> paper = paper_tile(arguments, point.problem, machine, machines.size() > 1);
    if (paper) remark(paper->remark);
    for (const Kernel* kernel : chosen.kernels) {
      SimulateJob job{.kernel = kernel, .problem = problem, .machine = &machine};
      for (const Direction direction : directions) {
        plan.refusals.allow(kernel_and_direction(kernel->name, direction), where, [&] {
          ProgramOptions options = point.apply_to(arguments.kernel.program_options(*kernel, problem));
          if (paper) options.set_tile(paper->tile);
          SimulateJob planned = plan_job(*kernel, problem, options, {direction}, machine);
          std::move(planned.passes.begin(), planned.passes.end(), std::back_inserter(job.passes));
        });
      }
      if (!job.passes.empty()) plan.jobs.push_back(std::move(job));
    }
  }
  remark(chosen.line);
}

}  // namespace

SimulatePlan plan_jobs(const SimulateArguments& arguments, const std::vector<Machine>& machines) {
  SimulatePlan plan{.jobs = {}, .remarks = {}, .refusals = Refusals(arguments.sweep.given())};
  for (const SweepPoint& point : arguments.sweep.points(arguments.simulated_problem())) {
    plan_point(arguments, point, machines, plan);
  }
  if (plan.jobs.empty()) plan.refusals.throw_first();
  return plan;
}

std::vector<SimulateJob> own_jobs(std::vector<SimulateJob> jobs, const Shard& shard, bool curve) {
  constexpr double kEvenByFormula = 1e-3;  // seconds
  std::vector<double> costs;
  for (const SimulateJob& job : jobs) costs.push_back(kEvenByFormula + seconds_of(job, {.l2_curve = curve}));
  return shard.part_of(std::move(jobs), costs);
}

std::string announcement(const std::vector<SimulateJob>& jobs, const SimulationOptions& how,
                         bool side_by_side) {
  double seconds = 0;
  for (const SimulateJob& job : jobs)
    seconds += side_by_side ? seconds_of(job, how) : seconds_alone(job, how);
  return announcement(seconds, side_by_side ? jobs.size() : 1);
}

std::string announcement(double core_seconds, std::size_t side_by_side) {
  const auto cores = std::min(static_cast<int>(side_by_side), omp_get_max_threads());
  const double seconds = seconds_now(core_seconds / std::max(1, cores), std::max(1, cores));
  if (seconds < kWorthSaying) return "";
  return fmt::format("the replay takes {}; --closed-form leaves it out\n", about_seconds(seconds));
}

std::string plan_text(const std::vector<SimulateJob>& jobs, const SimulationOptions& how) {
  std::string text;
  double all = 0;
  for (const SimulateJob& job : jobs) {
    const double seconds = seconds_of(job, how);
    all += seconds;
    text += fmt::format("{} {} on {}: {}, {}\n", job.kernel->name, describe(job.problem), job.machine->name,
                        counted(job.passes.size(), "pass"), about_seconds(seconds));
  }
  return text + fmt::format("{}, {}\n", counted(jobs.size(), "run"), about_seconds(all));
}

}  // namespace tilescope::cli
