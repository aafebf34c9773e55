// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/bench_tune.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/tables/bench_report.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"
#include "common/number_format.hpp"
#include "cpu_ref/launch/launch_text.hpp"
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

bool is_larger(TileShape tile, const AttentionProblem& problem) {
  return tile.block_m > problem.seqlen_q || tile.block_n > problem.seqlen_k;
}

/// "128x64", "128x64 8 warps 3 stages".
std::string choice_text(const PassChoice& choice) {
  return to_string(choice.tile) + launch_text(choice.launch);
}

}  // namespace

std::string_view to_string(PruneReason reason) {
  return reason == PruneReason::does_not_fit ? "does not fit the device" : "larger than the problem";
}

std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem,
                                     const Chip& chip) {
  std::vector<TuningTask> tasks;
  for (const TunedPass& tiled : passes_of(kernel, problem)) {
    TuningTask task{.pass = tiled.pass, .cases = {}, .candidates = {}, .pruned = {}};
    const std::vector<PassChoice> choices = kernel.pass_choices(problem, tiled.pass);
    for (const PassChoice& choice : choices) {
      ProgramOptions options = kernel.default_options(problem);
      options.backward = tiled.backward;
      options[tiled.pass].tile = choice.tile;
      options[tiled.pass].launch = choice.launch;
      if (kernel.refusal(problem, tiled.direction, options)) continue;
      if (const auto lack = kernel.chip_lack(chip, problem, tiled.direction, options)) {
        task.pruned.push_back({choice, PruneReason::does_not_fit, *lack});
      } else if (choice.tile != choices.front().tile && is_larger(choice.tile, problem)) {
        task.pruned.push_back({choice, PruneReason::larger_than_problem, describe(problem)});
      } else {
        task.cases.push_back({&kernel, problem, tiled.direction, options, 1});
        task.candidates.push_back(choice);
      }
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
                    .seqlen = length_bucket(first.problem),
                    .choice = {},
                    .tried = {},
                    .problem = describe(first.problem),
                    .when = utc_now(),
                    .git_sha = built_from().sha};
  for (std::size_t i = 0; i < task.cases.size(); ++i) {
    if (samples_s[i].empty()) continue;
    choice.tried.push_back({task.candidates[i], timed_pass(task.cases[i], samples_s[i]).time->median_s});
  }
  if (choice.tried.empty()) throw MachineLacks(fmt::format("no tile of {} could be timed", choice.kernel));
  choice.choice =
      std::min_element(choice.tried.begin(), choice.tried.end(), [](const TriedTile& a, const TriedTile& b) {
        return a.median_s < b.median_s;
      })->choice;
  return choice;
}

std::string tuning_table(const std::vector<TileChoice>& choices) {
  std::vector<std::vector<std::string>> rows = {{"kernel", "problem", "pass", "choice", "median", ""}};
  for (const TileChoice& choice : choices) {
    for (const TriedTile& tried : choice.tried) {
      rows.push_back({choice.kernel, choice.problem, std::string(to_string(choice.pass)),
                      choice_text(tried.choice), format_seconds(tried.median_s),
                      tried.choice == choice.choice ? "chosen" : ""});
    }
  }
  return align_columns(rows, "", {false, false, false, false, true});
}

std::string pruned_text(const std::vector<TuningTask>& tasks) {
  std::size_t all = 0, larger = 0, unfit = 0;
  for (const TuningTask& task : tasks) {
    all += task.candidates.size() + task.pruned.size();
    for (const PrunedChoice& pruned : task.pruned) {
      ++(pruned.reason == PruneReason::does_not_fit ? unfit : larger);
    }
  }
  return fmt::format(
      "{} of {} choices left out before timing: {} larger than the problem, {} do not fit the "
      "device",
      larger + unfit, all, larger, unfit);
}

std::string tuning_csv(const std::vector<TuningTask>& tasks, const std::vector<TileChoice>& choices) {
  std::string text =
      "device,kernel,batch,heads,heads_kv,seqlen_q,seqlen_k,head_dim,dtype,causal,seqlen_bucket,pass,block_m,"
      "block_n,warps,stages,median_s,outcome\n";
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TileChoice& chosen = choices[i];
    const AttentionProblem& p = tasks[i].cases.front().problem;
    const auto number_or_own = [](int number) { return number > 0 ? std::to_string(number) : "own"; };
    const auto add = [&](const PassChoice& choice, const std::string& median, std::string_view outcome) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", chosen.device,
                          chosen.kernel, p.batch, p.heads, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim,
                          to_string(p.dtype), p.causal ? "yes" : "no", chosen.seqlen, to_string(chosen.pass),
                          choice.tile.block_m, choice.tile.block_n, number_or_own(choice.launch.warps),
                          number_or_own(choice.launch.stages), median, outcome);
    };
    for (const TriedTile& tried : chosen.tried) {
      add(tried.choice, fmt::format("{:.9g}", tried.median_s),
          tried.choice == chosen.choice ? "chosen" : "tried");
    }
    for (const PrunedChoice& pruned : tasks[i].pruned) add(pruned.choice, "", to_string(pruned.reason));
  }
  return text;
}

}  // namespace tilescope::cli
