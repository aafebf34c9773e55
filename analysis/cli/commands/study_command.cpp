// SPDX-License-Identifier: Apache-2.0
// `tilescope study`: the sweeps behind the figures of a report.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/expected_time.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/studies/holdout.hpp"
#include "analysis/studies/study.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

struct StudyArguments {
  std::string name;
  std::string machine;
  std::vector<std::string> kernels;
  Shard shard;
  std::optional<std::uint64_t> seed;
  std::int64_t count = kDrawnPasses;
  bool dry_run = false;
};

std::vector<std::string> study_names() {
  std::vector<std::string> names;
  for (const Study& study : studies()) names.emplace_back(study.name);
  return names;
}

/// Simulations side by side; what computes on all threads by itself, one after the other.
/// @param said  how long they take [seconds]
std::vector<std::vector<RunEntry>> run_tasks(const Study& study, const std::vector<StudyTask>& tasks,
                                             double said, const CommandContext& context) {
  std::vector<double> work;
  for (const StudyTask& task : tasks) work.push_back(task.seconds);
  TimeOfParts time(context, "study", work, said);
  const auto count = static_cast<std::int64_t>(tasks.size());
  Progress progress(context, fmt::format("study {}", study.name), count);
  std::vector<std::vector<RunEntry>> runs(tasks.size());
  const auto run_one = [&](std::int64_t i) {
    const auto task = static_cast<std::size_t>(i);
#pragma omp critical(study_progress)
    progress.step(tasks[task].label);
    runs[task] = tasks[task].run();
#pragma omp critical(study_progress)
    time.step(task);
  };
  if (study.default_machine.empty()) {
    for (std::int64_t i = 0; i < count; ++i) run_one(i);
  } else {
    parallel_for_each(count, run_one);
  }
  return runs;
}

/// Those that a study which runs kernels was told to, or all that run here.
std::vector<const Kernel*> kernels_of(const Study& study, const std::vector<std::string>& named) {
  if (study.plan_of_kernels == nullptr) {
    if (named.empty()) return {};
    throw BadInput("--kernel", named.front(), fmt::format("must be left out: {} runs no kernel", study.name));
  }
  std::vector<const Kernel*> kernels;
  for (const std::string& names : named) {
    for (const std::string& name : words_of_list(names)) kernels.push_back(&find_kernel(name));
  }
  for (const Kernel* kernel : kernels) require_runnable(*kernel);
  if (!kernels.empty()) return kernels;
  kernels = all_kernels();
  std::erase_if(kernels, [](const Kernel* kernel) { return !is_runnable(*kernel); });
  return kernels;
}

/// @param kernels  that the study runs
std::vector<StudyTask> tasks_of(const Study& study, const StudyArguments& arguments, const Machine& machine,
                                const std::vector<const Kernel*>& kernels) {
  if (arguments.seed && study.plan_of_draw == nullptr) {
    throw BadInput("seed", std::to_string(*arguments.seed),
                   fmt::format("must be left out: {} draws nothing", study.name));
  }
  if (!arguments.seed && study.plan_of_draw != nullptr) {
    throw BadInput("--seed", "(none)", fmt::format("must be given: {} draws by it", study.name));
  }
  if (study.plan_of_kernels) return study.plan_of_kernels(kernels);
  if (study.plan_of_draw) {
    return study.plan_of_draw(machine, *arguments.seed, static_cast<int>(arguments.count), all_kernels());
  }
  return study.plan(machine);
}

std::vector<StudyTask> own_tasks(std::vector<StudyTask> tasks, const Shard& shard) {
  std::vector<double> costs;
  for (const StudyTask& task : tasks) costs.push_back(task.seconds);
  return shard.part_of(std::move(tasks), costs);
}

/// A line for each tensor that was judged; nothing where none was.
Output error_table(const std::vector<RunEntry>& runs) {
  Table table{.rows = {{"kernel", "problem", "seed", "of", "rmse", "max error"}}};
  for (const RunEntry& run : runs) {
    for (const auto& [tensor, error] : run.error) {
      table.rows.push_back({run.kernel, as_problem(run.problem),
                            as_count(static_cast<std::int64_t>(run.problem.seed)), tensor,
                            as_number(fmt::format("{:.3g}", error.rmse), error.rmse),
                            as_number(fmt::format("{:.3g}", error.max_abs), error.max_abs)});
    }
  }
  return table.rows.size() > 1 ? Output(table) : Output();
}

/// What the tasks take as run_tasks() runs them, on idle cores.
double seconds_of(const Study& study, const std::vector<StudyTask>& tasks) {
  const bool side_by_side = !study.default_machine.empty();
  double seconds = 0, longest = 0;
  for (const StudyTask& task : tasks) {
    seconds += task.seconds;
    longest = std::max(longest, task.seconds);
  }
  return side_by_side ? std::max(longest, seconds / omp_get_max_threads()) : seconds;
}

int run_study(const StudyArguments& arguments, const CommandContext& context) {
  const Study& study = find_study(arguments.name);
  if (study.default_machine.empty() && !arguments.machine.empty()) {
    throw BadInput("machine", arguments.machine,
                   fmt::format("must be left out: {} computes, and simulates no machine", study.name));
  }
  const std::string machine =
      arguments.machine.empty() ? std::string(study.default_machine) : arguments.machine;
  const Machine model = machine.empty() ? Machine{} : load_machine(machine);
  const std::vector<const Kernel*> kernels = kernels_of(study, arguments.kernels);
  const std::vector<StudyTask> tasks = own_tasks(tasks_of(study, arguments, model, kernels), arguments.shard);
  const double idle = seconds_of(study, tasks);
  const double seconds = arguments.dry_run ? idle : seconds_now(idle, omp_get_max_threads());
  context.print(fmt::format("{}: {} on {}, {}\n", study.name, counted(tasks.size(), "task"),
                            machine.empty() ? "this machine" : machine, about_seconds(seconds)));
  if (arguments.dry_run) {
    for (const StudyTask& task : tasks) {
      context.print(fmt::format("  {}: {}\n", task.label, about_seconds(task.seconds)));
    }
    return kFine;
  }
  if (!context.wants_json()) context.print("nothing of it is kept without --json FILE\n");
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  record.shard = arguments.shard.name();
  note_device(record.machine, kernels);
  for (std::vector<RunEntry>& runs : run_tasks(study, tasks, seconds, context)) {
    for (RunEntry& run : runs) record.runs.push_back(std::move(run));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  context.print(simulated_sweep_table(record.runs) + error_table(record.runs));
  context.print(fmt::format("\n{}: {} in {:.1f} s{}\n", study.name, counted(record.runs.size(), "run"),
                            elapsed.count(),
                            context.wants_json() && context.json != "-" && !record.shard
                                ? fmt::format("; `tilescope report {}` turns them into figures", context.json)
                                : ""));
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_study_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<StudyArguments>();
  CLI::App& command =
      add_command(app, context, "study", "a named sweep whose record `report` turns into figures",
                  [arguments, &context] { return run_study(*arguments, context); });
  command.add_option("name", arguments->name, "which (tilescope list studies)")
      ->type_name(fmt::format("{}", fmt::join(study_names(), "|")));
  add_value(command, "--machine", arguments->machine, "MACHINE|FILE.json",
            "a machine's name or file; default: the study's own");
  command
      .add_option(
          "--kernel", arguments->kernels,
          "of paper-errors: its name, several with commas or by repeating it; default: all that run here")
      ->type_name("KERNEL")
      ->allow_extra_args(false);
  command.add_option("--seed", arguments->seed, "of holdout: what draws the passes")->type_name("S");
  add_integer(command, "--count", arguments->count, 1, 100000,
              fmt::format("of holdout: runs of ours that are drawn, and of other libraries' kernels ({})",
                          kDrawnPasses));
  arguments->shard.add_to(command, {}, context.json);
  command.add_flag("--dry-run", arguments->dry_run, "what would be done, and how long it may take");
  add_format_option(command, context);
  show_examples(command, {{"study block-size --json run.json", "a record for tilescope report run.json"},
                          {"study seqlen --format latex >seqlen.tex", "its tables alone, for a paper"},
                          {"list studies", "all of them, with what they take"}});
}

}  // namespace tilescope::cli
