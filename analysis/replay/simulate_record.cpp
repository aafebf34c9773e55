// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/simulate_record.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope {
namespace {

std::vector<Direction> directions_of(const RunEntry& run) {
  std::vector<Direction> directions;
  for (const PassRecord& pass : run.passes) {
    if (directions.empty() || directions.back() != pass.direction) directions.push_back(pass.direction);
  }
  return directions;
}

const PassRecord* find_pass(const RunEntry& run, PassName name) {
  const auto found = std::find_if(run.passes.begin(), run.passes.end(),
                                  [name](const PassRecord& pass) { return pass.name == to_string(name); });
  return found == run.passes.end() ? nullptr : &*found;
}

}  // namespace

ProgramOptions options_of(const RunEntry& run, const Kernel& kernel) {
  ProgramOptions options = kernel.default_options(run.problem);
  options.order = run.order.value_or(TileOrder::row_major);
  options.scan = run.scan.value_or(Scan::ascending);
  for (int i = 0; i < kNumPasses; ++i) {
    const auto name = static_cast<PassName>(i);
    if (const PassRecord* pass = find_pass(run, name)) options[name].tile = pass->tile;
  }
  if (find_pass(run, PassName::dkdv)) options.backward = BackwardOrder::split;
  if (find_pass(run, PassName::dkdvdq)) options.backward = BackwardOrder::fused;
  if (find_pass(run, PassName::dqdkdv)) options.backward = BackwardOrder::rows;
  return options;
}

RunEntry simulate_again(const RunEntry& run, const Kernel& kernel, const Machine& machine,
                        SimulationOptions options) {
  options.l2_curve = false;  // of one L2, the measured one
  options.pages = run.pages;
  const std::vector<Direction> directions = directions_of(run);
  const auto passes = plan_passes(kernel, run.problem, directions, options_of(run, kernel), machine);
  const RunEntry simulated = simulate_run(kernel, run.problem, passes, machine, options);
  const bool same_passes = std::equal(
      run.passes.begin(), run.passes.end(), simulated.passes.begin(), simulated.passes.end(),
      [](const PassRecord& a, const PassRecord& b) { return a.name == b.name && a.tile == b.tile; });
  if (!same_passes) {
    throw BadInput("record", fmt::format("{} {}", run.kernel, describe(run.problem)),
                   "does not have the passes that this version of the kernel has");
  }
  RunEntry both = run;
  for (std::size_t i = 0; i < both.passes.size(); ++i) {
    PassRecord& pass = both.passes[i];
    pass.flops = simulated.passes[i].flops;
    pass.executed_flops = simulated.passes[i].executed_flops;
    pass.closed_form = simulated.passes[i].closed_form;
    if (simulated.passes[i].simulated) pass.simulated = simulated.passes[i].simulated;
  }
  return both;
}

}  // namespace tilescope
