// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/simulate_record.hpp"

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

/// The kernel's own options but for splits of keys and packed heads, which a pass names where it has them.
ProgramOptions options_before_choices(const RunEntry& run, const Kernel& kernel) {
  ProgramOptions options = kernel.default_options(run.problem);
  options.splits = {};
  options.pack_gqa = false;
  return options;
}

void take_choices(ProgramOptions& options, const PassChoices& choices) {
  if (choices.diagonal_slices) options.diagonal_slices = static_cast<int>(*choices.diagonal_slices);
  if (choices.splits) options.splits = *choices.splits;
  if (choices.pack_gqa) options.pack_gqa = true;
  if (choices.variant) options.variant = parse_variant(*choices.variant);
  if (choices.fp8_sums) options.fp8_sums = parse_fp8_sums(*choices.fp8_sums);
  if (!choices.backward) return;
  options.backward = *choices.backward;
  options.dq_start = choices.dq_start ? parse_dq_start(*choices.dq_start) : DqStart::cleared;
  options.set_query_splits(static_cast<int>(choices.query_splits.value_or(1)));
}

/// Whether two records hold the same passes of the same runs, in the same order.
bool same_runs(const RunRecord& one, const RunRecord& other) {
  const auto same_pass = [](const PassRecord& a, const PassRecord& b) {
    return a.name == b.name && a.tile == b.tile && a.choices == b.choices;
  };
  const auto same_run = [&same_pass](const RunEntry& a, const RunEntry& b) {
    return a.kernel == b.kernel && a.problem == b.problem && a.pages == b.pages &&
           std::equal(a.passes.begin(), a.passes.end(), b.passes.begin(), b.passes.end(), same_pass);
  };
  return std::equal(one.runs.begin(), one.runs.end(), other.runs.begin(), other.runs.end(), same_run);
}

/// Whether a simulation may be of the device that measured: not where both are known and differ.
bool same_machine(const RunRecord& measured, const RunRecord& simulation) {
  const std::optional<Machine> device = machine_of_device(measured.machine.name.value_or(""));
  if (!device) return true;
  const std::vector<std::string> known = machine_names();
  for (const RunEntry& run : simulation.runs) {
    for (const PassRecord& pass : run.passes) {
      if (!pass.simulated) continue;
      std::string simulated = pass.simulated->machine;
      if (simulated.ends_with(kMeasuredSuffix)) simulated.resize(simulated.size() - kMeasuredSuffix.size());
      return simulated == device->name || std::ranges::find(known, simulated) == known.end();
    }
  }
  return true;
}

}  // namespace

ProgramOptions options_of(const RunEntry& run, const Kernel& kernel) {
  ProgramOptions options = options_before_choices(run, kernel);
  options.order = run.order.value_or(TileOrder::row_major);
  options.scan = run.scan.value_or(Scan::ascending);
  for (const PassRecord& pass : run.passes) {
    const PassChoices& choices = pass.choices;
    for (int i = 0; i < kNumPasses; ++i) {
      if (pass.name != to_string(static_cast<PassName>(i))) continue;
      options.passes[static_cast<std::size_t>(i)] = {
          .tile = pass.tile,
          .row_reads = options.passes[static_cast<std::size_t>(i)].row_reads,
          .launch = {static_cast<int>(choices.warps.value_or(0)),
                     static_cast<int>(choices.stages.value_or(0))}};
    }
    take_choices(options, choices);
  }
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
    pass.exponentials = simulated.passes[i].exponentials;
    pass.closed_form = simulated.passes[i].closed_form;
    pass.simulated = simulated.passes[i].simulated;
    pass.predicted = simulated.passes[i].predicted;
  }
  return both;
}

bool only_timed(const RunEntry& run) {
  return std::all_of(run.passes.begin(), run.passes.end(),
                     [](const PassRecord& pass) { return pass.time && !pass.closed_form; });
}

RunEntry simulate_apart(const RunEntry& run, const Kernel& kernel, const Machine& machine,
                        SimulationOptions options) {
  ProgramOptions chosen = options_before_choices(run, kernel);
  if (run.order) chosen.set_order(*run.order);
  if (run.scan) chosen.scan = *run.scan;
  for (const PassRecord& pass : run.passes) {
    if (pass.choices.backward) chosen.backward = *pass.choices.backward;
    for (const PassName name : tiled_passes(kernel.algorithm, pass.direction, chosen.backward)) {
      if (name == PassName::dq) continue;  // the tile is that of the pass before
      chosen[name].tile = pass.tile;
    }
    take_choices(chosen, pass.choices);
  }
  const std::vector<Direction> directions = directions_of(run);
  const auto passes = plan_passes(kernel, run.problem, directions, chosen, machine);
  options.pages = run.pages;
  return simulate_run(kernel, run.problem, passes, machine, options);
}

RunEntry without_measurements(const RunEntry& run) {
  RunEntry kept{.problem = run.problem, .kernel = run.kernel, .passes = {}, .error = {}};
  kept.algorithm = run.algorithm;
  kept.math_unit = run.math_unit;
  kept.runs_on = run.runs_on;
  kept.rung = run.rung;
  kept.order = run.order;
  kept.scan = run.scan;
  kept.pages = run.pages;
  for (const PassRecord& pass : run.passes) {
    PassRecord& model = kept.passes.emplace_back();
    model.name = pass.name;
    model.direction = pass.direction;
    model.tile = pass.tile;
    model.flops = pass.flops;
    model.executed_flops = pass.executed_flops;
    model.exponentials = pass.exponentials;
    model.choices = pass.choices;
    model.closed_form = pass.closed_form;
    model.simulated = pass.simulated;
    model.predicted = pass.predicted;
  }
  return kept;
}

void join_simulations(std::vector<RunRecord>& records) {
  for (RunRecord& simulation : records) {
    if (!simulation.simulation_of) continue;
    const SimulationSource& source = *simulation.simulation_of;
    const auto measured = std::find_if(records.begin(), records.end(), [&](const RunRecord& record) {
      return !record.simulation_of && record.argv == source.argv && record.when == source.when &&
             same_machine(record, simulation) && same_runs(record, simulation);
    });
    if (measured == records.end()) continue;
    for (std::size_t i = 0; i < simulation.runs.size(); ++i) {
      for (std::size_t pass = 0; pass < simulation.runs[i].passes.size(); ++pass) {
        PassRecord& both = measured->runs[i].passes[pass];
        const PassRecord& model = simulation.runs[i].passes[pass];
        both.closed_form = model.closed_form;
        both.simulated = model.simulated;
      }
    }
    simulation.runs.clear();
  }
}

}  // namespace tilescope
