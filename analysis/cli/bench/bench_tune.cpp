// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/bench_tune.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/tables/bench_report.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/counts/run_summary.hpp"
#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"
#include "common/number_format.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// A pass with tiles of its own, in the direction and the order that run it.
struct TunedPass {
  PassName pass;
  Direction direction;
  BackwardOrder backward;
};

/// Each pass once, in the first order that has it.
std::vector<TunedPass> passes_of(const Kernel& kernel, const AttentionProblem& problem) {
  const BackwardOrder own = kernel.default_options(problem).backward;
  std::vector<TunedPass> passes;
  const auto add = [&](Direction direction, BackwardOrder order) {
    for (const PassName pass : tiled_passes(kernel.algorithm, direction, order)) {
      const auto same = [&](const TunedPass& other) { return other.pass == pass; };
      if (std::none_of(passes.begin(), passes.end(), same)) passes.push_back({pass, direction, order});
    }
  };
  add(Direction::forward, own);
  add(Direction::backward, own);
  for (const BackwardOrder order : kernel.backward_orders) add(Direction::backward, order);
  return passes;
}

}  // namespace

std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem,
                                     const Chip& chip) {
  std::vector<TuningTask> tasks;
  for (const TunedPass& tiled : passes_of(kernel, problem)) {
    TuningTask task{.pass = tiled.pass, .cases = {}, .candidates = {}, .pruned = {}};
    for (const TileShape tile : kernel.tile_choices(problem, tiled.pass)) {
      ProgramOptions options = kernel.default_options(problem);
      options.backward = tiled.backward;
      options[tiled.pass].tile = tile;
      if (kernel.refusal(problem, tiled.direction, options)) continue;
      if (kernel.chip_lack(chip, problem, tiled.direction, options)) {
        task.pruned.push_back(tile);
        continue;
      }
      task.cases.push_back({&kernel, problem, tiled.direction, options, 1});
      task.candidates.push_back(tile);
    }
    if (task.candidates.size() + task.pruned.size() > 1 && !task.candidates.empty()) {
      tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

TileChoice choose_tile(const TuningTask& task, const std::vector<std::vector<double>>& samples_s,
                       const std::string& device) {
  const BenchmarkCase& first = task.cases.front();
  TileChoice choice{.device = device,
                    .kernel = std::string(first.kernel->name),
                    .pass = task.pass,
                    .head_dim = first.problem.head_dim,
                    .dtype = first.problem.dtype,
                    .causal = first.problem.causal,
                    .tile = {},
                    .tried = {},
                    .problem = describe(first.problem),
                    .when = utc_now(),
                    .git_sha = built_from().sha};
  for (std::size_t i = 0; i < task.cases.size(); ++i) {
    if (samples_s[i].empty()) continue;
    choice.tried.push_back({task.candidates[i], timed_pass(task.cases[i], samples_s[i]).time->median_s});
  }
  if (choice.tried.empty()) throw MachineLacks(fmt::format("no tile of {} could be timed", choice.kernel));
  choice.tile =
      std::min_element(choice.tried.begin(), choice.tried.end(), [](const TriedTile& a, const TriedTile& b) {
        return a.median_s < b.median_s;
      })->tile;
  return choice;
}

std::string tuning_table(const std::vector<TuningTask>& tasks, const std::vector<TileChoice>& choices) {
  std::vector<std::vector<std::string>> rows = {{"kernel", "problem", "pass", "tile", "median", ""}};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TileChoice& choice = choices[i];
    const auto add = [&](TileShape tile, const std::string& median, const char* note) {
      rows.push_back({choice.kernel, choice.problem, std::string(to_string(choice.pass)), to_string(tile),
                      median, note});
    };
    for (const TriedTile& tried : choice.tried) {
      add(tried.tile, format_seconds(tried.median_s), tried.tile == choice.tile ? "chosen" : "");
    }
    for (const TileShape tile : tasks[i].pruned) add(tile, "-", "does not fit");
  }
  return align_columns(rows, "", {false, false, false, false, true});
}

}  // namespace tilescope::cli
