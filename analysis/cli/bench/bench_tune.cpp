// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "analysis/cli/interruption.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"
#include "common/log.hpp"
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
      if (std::ranges::none_of(passes, same)) passes.push_back({pass, direction, order});
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
  choice.choice = std::ranges::min_element(choice.tried, {}, &TriedTile::median_s)->choice;
  return choice;
}

Table tuning_table(const std::vector<TileChoice>& choices) {
  Table table{{{"kernel", "problem", "pass", "choice", "median", ""}}};
  for (const TileChoice& choice : choices) {
    for (const TriedTile& tried : choice.tried) {
      table.rows.push_back({choice.kernel, choice.problem, to_string(choice.pass), choice_text(tried.choice),
                            in_seconds(tried.median_s), tried.choice == choice.choice ? "chosen" : ""});
    }
  }
  return table;
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

namespace {

/// @throws BadInput for what --tune leaves no choice of, or does not do
void require_tunable(const BenchArguments& arguments) {
  if (arguments.kernel.tile_given()) throw BadInput("tile", "given", "must be left out, --tune chooses it");
  if (arguments.peers) throw BadInput("peers", "given", "must be left out, --tune times TileScope's kernels");
  if (!arguments.plot.empty()) throw BadInput("--plot", arguments.plot, "must be left out with --tune");
  for (const char* choice : {"tile", "backward", "order", "scan", "diagonal_slices", "fp8_sums", "variant",
                             "splits", "pack_gqa", "query_splits"}) {
    if (arguments.sweep.axes().sets(choice)) {
      throw BadInput("sweep", choice, "must be left out, --tune times a kernel's own choices");
    }
  }
}

/// @throws BadInput, or MachineLacks, where a kernel has no tiles of its own or does not run here
void require_own_tiles(const std::vector<const Kernel*>& kernels) {
  for (const Kernel* kernel : kernels) {
    if (!kernel->launch_shape) {
      throw BadInput("kernel", std::string(kernel->name),
                     "must be one of the GPU's with --tune: others take any tile");
    }
    require_runnable(*kernel);
  }
}

/// Of each problem and kernel, the passes that leave a choice on the chip.
std::vector<TuningTask> all_tuning_tasks(const BenchArguments& arguments, const BenchSubjects& subjects,
                                         const std::vector<const Kernel*>& kernels, const Chip& chip,
                                         Refusals& refusals) {
  std::vector<TuningTask> tasks;
  for (const SweepPoint& point : subjects.points) {
    if (point.refusal) {
      refusals.add("", "", point.refusal, kernels.size());
      continue;
    }
    for (const Kernel* kernel : kernels) {
      const AttentionProblem problem =
          subjects.own_type ? arguments.problem.in_type_of({kernel}, point.problem) : point.problem;
      for (TuningTask& task : tuning_tasks(*kernel, problem, chip)) tasks.push_back(std::move(task));
    }
  }
  return tasks;
}

void log_pruned(const std::vector<TuningTask>& tasks) {
  log_text(LogLevel::info, [&] { return pruned_text(tasks); });
  for (const TuningTask& task : tasks) {
    for (const PrunedChoice& pruned : task.pruned) {
      log_text(LogLevel::debug, [&] {
        return fmt::format("left out of {}: {}, {}: {}", to_string(task.pass), to_string(pruned.choice.tile),
                           to_string(pruned.reason), pruned.detail);
      });
    }
  }
}

/// The fastest of each task that was timed; tasks that were not, and those none of whose choices runs here,
/// are taken from `tasks`. @param results  of the tasks' cases, one after the other
std::vector<TileChoice> fastest_choices(std::vector<TuningTask>& tasks, const DeviceBenchmarkResults& results,
                                        const std::string& device, Refusals& refusals) {
  std::vector<TileChoice> choices;
  std::vector<TuningTask> chosen;
  std::size_t next = 0;
  for (TuningTask& task : tasks) {
    if (next + task.cases.size() > results.times.size()) break;
    std::vector<std::vector<double>> samples_s;
    for (std::size_t i = 0; i < task.cases.size(); ++i) samples_s.push_back(results.times[next++].samples_s);
    const BenchmarkCase& first = task.cases.front();
    const std::string what = fmt::format("{}, {}", first.kernel->name, to_string(task.pass));
    const auto choose = [&] { choices.push_back(choose_tile(task, samples_s, device)); };
    if (refusals.allow(what, describe(first.problem), choose)) chosen.push_back(std::move(task));
  }
  tasks = std::move(chosen);
  return choices;
}

}  // namespace

int tune(BenchArguments& arguments, const DeviceBenchmarkSettings& settings, const CommandContext& context) {
  require_tunable(arguments);
  const BenchSubjects subjects = bench_subjects(arguments.sweep, arguments.problem, "tune");
  const std::string path = arguments.tune_file.empty() ? tile_table_path() : arguments.tune_file;
  TileTable table = read_tile_table(path);
  const auto kernels = arguments.kernel.kernels(subjects.kernels);
  require_own_tiles(kernels);
  const DeviceFacts device = device_facts().value();
  if (!kHasTuner) throw MachineLacks(std::string(kTunerLack));
  if (!arguments.csv.empty()) require_writable_file("--csv", arguments.csv);
  const CreatedFolders created =
      require_writable_folder("--tune-file", std::filesystem::absolute(path).parent_path().string());

  Refusals refusals;
  std::vector<TuningTask> tasks = all_tuning_tasks(arguments, subjects, kernels, device.chip, refusals);
  if (tasks.empty()) {
    context.print(refusals.text(0));
    context.print("These kernels have one tile shape each on these problems: there is nothing to choose.\n");
    return kFine;
  }
  context.print(pruned_text(tasks) + "\n");
  log_pruned(tasks);
  std::vector<BenchmarkCase> cases;
  for (const TuningTask& task : tasks) cases.insert(cases.end(), task.cases.begin(), task.cases.end());
  if (!arguments.rows.judge(rows_jobs(cases), context)) return kCheckFailed;
  const auto steps = settings.rounds * static_cast<std::int64_t>(cases.size());
  const Interruption interruption;
  const DeviceBenchmarkResults results = time_on_device(cases, settings, nullptr, steps, context);
  const std::vector<TileChoice> choices = fastest_choices(tasks, results, device.name, refusals);
  const std::size_t missing = cases.size() - results.times.size();
  if (choices.empty()) end_if_interrupted(missing, false);
  if (choices.empty()) refusals.throw_first();
  for (const TileChoice& choice : choices) table.put(choice);
  write_file_atomically("--tune-file", path, to_json_text(table));
  context.print(tuning_table(choices));
  context.print(refusals.text(choices.size()));
  if (!arguments.csv.empty()) write_file_atomically("--csv", arguments.csv, tuning_csv(tasks, choices));
  context.print(fmt::format("\nOn {}, L2 cold. Kept in {}; TILESCOPE_DISABLE_AUTOTUNE=1 leaves it unread.\n",
                            device.name, path));
  context.write_json(to_json_text(table));
  end_if_interrupted(missing, true);
  return kFine;
}

}  // namespace tilescope::cli
