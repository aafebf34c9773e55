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

Direction direction_of(TiledPass pass) {
  return pass == TiledPass::forward ? Direction::forward : Direction::backward;
}

/// Every pass with the kernel's own tiles but the one to be tuned; dq needs the split order to run at all.
ProgramOptions options_for(const Kernel& kernel, const AttentionProblem& problem, TiledPass pass,
                           TileShape tile) {
  ProgramOptions options = kernel.default_options(problem);
  if (pass == TiledPass::dq) options.backward = BackwardOrder::split;
  tile_of(options, pass) = tile;
  return options;
}

bool fits(const Kernel& kernel, const BenchmarkCase& c, std::int64_t shared_bytes_per_cta) {
  const std::vector<TileProgram> programs = kernel.programs(c.direction, c.problem, c.options);
  return std::all_of(programs.begin(), programs.end(), [&](const TileProgram& program) {
    return kernel.launch_shape(program).shared_bytes <= shared_bytes_per_cta;
  });
}

}  // namespace

std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem,
                                     std::int64_t shared_bytes_per_cta) {
  std::vector<TuningTask> tasks;
  for (const TiledPass pass : kTiledPasses) {
    const auto& orders = kernel.backward_orders;
    const bool has_split = std::find(orders.begin(), orders.end(), BackwardOrder::split) != orders.end();
    if (pass == TiledPass::dq && !has_split) continue;
    TuningTask task{.pass = pass, .cases = {}, .candidates = {}, .pruned = {}};
    for (const TileShape tile : tile_choices(kernel, problem, pass)) {
      const ProgramOptions options = options_for(kernel, problem, pass, tile);
      if (kernel.refusal(problem, direction_of(pass), options)) continue;
      const BenchmarkCase c{&kernel, problem, direction_of(pass), options, 1};
      if (!fits(kernel, c, shared_bytes_per_cta)) {
        task.pruned.push_back(tile);
        continue;
      }
      task.cases.push_back(c);
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
