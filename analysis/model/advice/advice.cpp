// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/advice/advice.hpp"

#include <algorithm>
#include <tuple>

#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/roofline.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "common/errors.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"

namespace tilescope {
namespace {

std::vector<TileShape> tiles_of(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                                const ProgramOptions& own) {
  std::vector<TileShape> tiles;
  if (kernel.tile_choices != nullptr) {
    for (const PassName pass : tiled_passes(kernel.algorithm, direction, own.backward)) {
      for (const TileShape tile : kernel.tile_choices(problem, pass)) {
        if (std::ranges::find(tiles, tile) == tiles.end()) tiles.push_back(tile);
      }
    }
    return tiles;
  }
  for (int m = 32; m <= 256; m *= 2) {
    for (int n = 32; n <= 256; n *= 2) tiles.push_back({m, n});
  }
  return tiles;
}

std::vector<int> query_splits_of(const Kernel& kernel, Direction direction, const ProgramOptions& own) {
  std::vector<int> splits = {own.query_splits};
  if (direction == Direction::forward || !kernel.can.backward.has(Feature::query_splits)) return splits;
  for (const int number : {1, 2, 4, 8}) {
    if (number != own.query_splits) splits.push_back(number);
  }
  return splits;
}

}  // namespace

bool fits(const Kernel& kernel, const std::vector<PlannedPass>& passes, const Machine& machine) {
  return kernel.launch_shape != nullptr ||  // compiled, so it fits
         std::ranges::all_of(passes, [&machine](const PlannedPass& pass) {
           return machine.fits(pass.program.shared_bytes());
         });
}

std::vector<ProgramOptions> choices_of(const Kernel& kernel, const AttentionProblem& problem,
                                       Direction direction, const ProgramOptions& own) {
  std::vector<ProgramOptions> choices = {own};
  for (const TileShape tile : tiles_of(kernel, problem, direction, own)) {
    for (const TileOrder order : {TileOrder::row_major, TileOrder::longest_first, TileOrder::head_swizzled}) {
      for (const Scan scan : {Scan::ascending, Scan::descending, Scan::sawtooth}) {
        for (const int splits : query_splits_of(kernel, direction, own)) {
          ProgramOptions options = own;
          options.set_tile(direction, tile);
          options.order = order;
          options.scan = scan;
          options.set_query_splits(splits);
          if (options != own && !kernel.refusal(problem, direction, options)) choices.push_back(options);
        }
      }
    }
  }
  return choices;
}

double bound_seconds(const RunEntry& run, Direction direction, const Machine& machine) {
  const PassRecord total = direction_total(run, direction).value();
  KernelWork work;
  work.flops = total.flops;
  work.exponentials = total.exponentials;
  work.sm_l2_bytes = total.closed_form->sm_l2_bytes();
  if (total.simulated) work.dram_bytes = total.simulated->dram_bytes();
  const auto ceilings =
      ceilings_of(with_measured_ceilings(machine), product_type(run.problem.dtype, run.math_unit));
  return roofline(work, ceilings).least_seconds.value_or(0);
}

Advice advise(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
              const ProgramOptions& own, const Machine& machine, const SimulationOptions& how,
              const std::function<void(double core_seconds, std::size_t count)>& before_replay) {
  constexpr std::size_t kReplayed = 10;
  if (const auto why = kernel.refusal(problem, direction, own))
    throw BadInput("kernel", std::string(kernel.name), *why);
  Advice advice;
  struct Tried {
    std::vector<PlannedPass> passes;
    RunEntry run;
    /// Seconds, in which the same clocks added in another order do not differ; of choices that are done at
    /// the same time, the one that moves less comes first. [s, B, B]
    std::tuple<float, std::int64_t, std::int64_t> rank = {};
  };
  std::vector<Tried> all;
  for (const ProgramOptions& options : choices_of(kernel, problem, direction, own)) {
    std::vector<PlannedPass> passes =
        plan_passes(kernel, problem, std::span(&direction, 1), options, machine);
    if (all.empty() || fits(kernel, passes, machine)) all.push_back({std::move(passes), {}});
  }
  const auto simulate = [&](Tried& tried, bool replay) {
    SimulationOptions options = how;
    options.replay = replay;
    options.l2_curve = false;
    tried.run = simulate_run(kernel, problem, tried.passes, machine, options);
    const PassRecord total = direction_total(tried.run, direction).value();
    const double seconds =
        total.predicted ? total.predicted->seconds : bound_seconds(tried.run, direction, machine);
    tried.rank = {static_cast<float>(seconds), total.simulated ? total.simulated->dram_bytes() : 0,
                  total.closed_form->sm_l2_bytes()};
  };
  parallel_for_each(static_cast<std::int64_t>(all.size()),
                    [&](std::int64_t i) { simulate(all[static_cast<std::size_t>(i)], false); });
  advice.tried = static_cast<int>(all.size());
  advice.predicted = direction_total(all.front().run, direction).value().predicted.has_value();
  // Of a choice whose instance is not known there is a bound alone, which no prediction is held against.
  if (advice.predicted) {
    std::erase_if(all, [direction](const Tried& tried) {
      return !direction_total(tried.run, direction).value().predicted;
    });
  }
  const auto sooner = [](const Tried& a, const Tried& b) { return a.rank < b.rank; };
  std::stable_sort(all.begin() + 1, all.end(), sooner);  // the own choice stays in front
  if (all.size() > kReplayed) all.resize(kReplayed);
  if (how.replay) {
    double seconds = 0;
    for (const Tried& tried : all)
      seconds += replay_seconds(tried.passes, false, machine.knows_progress_on(kernel.math_unit),
                                machine.split_l2().has_value());
    if (before_replay) before_replay(seconds, all.size());
    parallel_for_each(static_cast<std::int64_t>(all.size()),
                      [&](std::int64_t i) { simulate(all[static_cast<std::size_t>(i)], true); });
  }
  advice.replayed = how.replay ? static_cast<int>(all.size()) : 0;
  advice.own = all.front().run;
  std::ranges::stable_sort(all, sooner);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, all.size()); ++i) advice.best.push_back(all[i].run);
  return advice;
}

KvInL2 kv_in_l2(const AttentionProblem& problem, std::int64_t kept_bytes) {
  const std::int64_t heads = problem.batch * problem.heads_kv;
  std::int64_t keys = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) keys += problem.keys_of(batch);
  const std::int64_t columns = problem.head_dim + (problem.shared_kv ? 0 : problem.value_dim());
  const std::int64_t bytes = keys * problem.heads_kv * columns * element_bytes(problem.kv_type());
  return {std::max<std::int64_t>(1, bytes / heads), heads, kept_bytes};
}

}  // namespace tilescope
