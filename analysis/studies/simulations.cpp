// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/simulations.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/model/replay/simulate_run.hpp"

namespace tilescope {
namespace {

const Kernel& cpu_kernel(Algorithm algorithm) {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.algorithm == algorithm) return kernel;
  }
  throw std::logic_error("no CPU kernel executes this algorithm");
}

}  // namespace

const AttentionProblem& preset_problem(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.problem;
  }
  throw std::logic_error("no such preset");
}

TileShape usual_tile(Algorithm algorithm) {
  return algorithm == Algorithm::flash1 ? TileShape{64, 128} : TileShape{128, 128};
}

void Simulations::add(Algorithm algorithm, const AttentionProblem& problem,
                      std::span<const Direction> directions, TileShape tile, BackwardOrder backward) {
  const Kernel& kernel = cpu_kernel(algorithm);
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = backward;
  std::vector<PlannedPass> passes = plan_passes(kernel, problem, directions, options, machine);
  const double seconds = replay_seconds(passes, keep_curves, false, machine.split_l2().has_value());
  tasks.push_back(
      {fmt::format("{} {} tile {}x{}", kernel.name, describe(problem), tile.block_m, tile.block_n),
       [passes = std::move(passes), problem, &kernel, &machine = machine, keep = keep_curves] {
         return std::vector<RunEntry>{simulate_run(kernel, problem, passes, machine, {.l2_curve = keep})};
       },
       seconds});
}

void Simulations::count(Algorithm algorithm, const AttentionProblem& problem,
                        std::span<const Direction> directions, TileShape tile, int slices) {
  const Kernel& kernel = cpu_kernel(algorithm);
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  options.diagonal_slices = slices;
  std::vector<PlannedPass> passes = plan_passes(kernel, problem, directions, options, machine);
  tasks.push_back({fmt::format("{} {} tile {}x{}, {} slices", kernel.name, describe(problem), tile.block_m,
                               tile.block_n, slices),
                   [passes = std::move(passes), problem, &kernel, &machine = machine] {
                     return std::vector<RunEntry>{
                         simulate_run(kernel, problem, passes, machine, {.replay = false})};
                   },
                   0});
}

}  // namespace tilescope
