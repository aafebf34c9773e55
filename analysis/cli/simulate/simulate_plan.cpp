// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

double seconds_of(const SimulateJob& job, const SimulationOptions& how) {
  return how.replay ? replay_seconds(job.passes, how.l2_curve) : 0;
}

}  // namespace

std::optional<PaperTile> paper_tile(const SimulateArguments& arguments, const AttentionProblem& problem,
                                    const Machine& machine) {
  if (!arguments.sram_bytes) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t sram_bytes = *arguments.sram_bytes == "machine"
                                      ? machine.shared_bytes_per_cta.value
                                      : parse_bytes_in("sram-bytes", *arguments.sram_bytes, 1, kMost);
  const std::int64_t m = std::max<std::int64_t>(1, sram_bytes / element_bytes(problem.dtype));
  const TileShape tile = flash1_tile_rule(m, problem.head_dim);
  const std::int64_t needed = flash1_sram_elements_needed(tile, problem.head_dim);
  return PaperTile{
      tile, fmt::format(
                "tile {}x{} by the paper's rule for M = {} elements: Q, O, K, V and S take {}, {}\n",
                tile.block_m, tile.block_n, m, needed,
                needed <= m ? "which fits" : "MORE than M (the rule is asymptotic; it fits from M = 8 d^2)")};
}

ChosenKernels chosen_kernels(const SimulateArguments& arguments, const AttentionProblem& problem,
                             const std::vector<Machine>& machines) {
  if (arguments.kernel.given()) return {arguments.kernel.kernels({}), ""};
  const DefaultKernel chosen =
      arguments.sram_bytes
          ? DefaultKernel{&find_kernel("cpu:flash2"), "it takes the tile of --sram-bytes"}
          : default_kernel(machines, problem, arguments.problem.directions(), arguments.kernel);
  return {{chosen.kernel},
          wrapped(fmt::format("kernel: {}, because {}", chosen.kernel->name, chosen.reason))};
}

SimulatePlan plan_jobs(const SimulateArguments& arguments, const std::vector<Direction>& directions,
                       const std::optional<PaperTile>& paper, const std::vector<Machine>& machines) {
  SimulatePlan plan;
  for (const SweepPoint& point : arguments.sweep.points(arguments.simulated_problem())) {
    const auto [kernels, line] = chosen_kernels(arguments, point.problem, machines);
    if (plan.default_kernels.find(line) == std::string::npos) plan.default_kernels += line;
    AttentionProblem problem = point.problem;
    if (!arguments.sweep.sets("dtype")) problem = arguments.problem.in_type_of(kernels, problem);
    for (const Machine& machine : machines) {
      for (const Kernel* kernel : kernels) {
        ProgramOptions options = point.apply_to(arguments.kernel.program_options(*kernel, problem));
        if (paper) options.set_tile(paper->tile);
        plan.jobs.push_back(plan_job(*kernel, problem, options, directions, machine));
      }
    }
  }
  return plan;
}

std::vector<SimulateJob> own_jobs(std::vector<SimulateJob> jobs, const Shard& shard, bool curve) {
  constexpr double kEvenByFormula = 1e-3;  // seconds
  std::vector<double> costs;
  for (const SimulateJob& job : jobs) costs.push_back(kEvenByFormula + replay_seconds(job.passes, curve));
  return shard.part_of(std::move(jobs), costs);
}

std::string announcement(const std::vector<SimulateJob>& jobs, const SimulationOptions& how) {
  double seconds = 0;
  for (const SimulateJob& job : jobs) seconds += seconds_of(job, how);
  if (seconds < 60) return "";
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
