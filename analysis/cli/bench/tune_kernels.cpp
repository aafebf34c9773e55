// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/tune_kernels.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/bench/bench_tune.hpp"
#include "analysis/cli/bench/time_cases.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/files/atomic_file.hpp"
#include "analysis/records/files/output_path.hpp"
#include "common/log.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// @throws BadInput for what --tune leaves no choice of, or does not do
void require_tunable(const BenchArguments& arguments) {
  if (arguments.kernel.tile_given()) throw BadInput("tile", "given", "must be left out, --tune chooses it");
  if (arguments.peers) throw BadInput("peers", "given", "must be left out, --tune times TileScope's kernels");
  if (!arguments.plot.empty()) throw BadInput("--plot", arguments.plot, "must be left out with --tune");
  for (const char* choice : {"tile", "backward", "order", "scan", "diagonal_slices", "fp8_sums"}) {
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
                                         const std::vector<const Kernel*>& kernels, const Chip& chip) {
  std::vector<TuningTask> tasks;
  for (const SweepPoint& point : subjects.points) {
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

/// The fastest of each task. @param results  of the tasks' cases, one after the other
std::vector<TileChoice> fastest_choices(const std::vector<TuningTask>& tasks,
                                        const DeviceBenchmarkResults& results, const std::string& device) {
  std::vector<TileChoice> choices;
  std::size_t next = 0;
  for (const TuningTask& task : tasks) {
    std::vector<std::vector<double>> samples_s;
    for (std::size_t i = 0; i < task.cases.size(); ++i) samples_s.push_back(results.times[next++].samples_s);
    choices.push_back(choose_tile(task, samples_s, device));
  }
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

  const std::vector<TuningTask> tasks = all_tuning_tasks(arguments, subjects, kernels, device.chip);
  if (tasks.empty()) {
    context.print("These kernels have one tile shape each on these problems: there is nothing to choose.\n");
    return kFine;
  }
  context.print(pruned_text(tasks) + "\n");
  log_pruned(tasks);
  std::vector<BenchmarkCase> cases;
  for (const TuningTask& task : tasks) cases.insert(cases.end(), task.cases.begin(), task.cases.end());
  if (!arguments.rows.judge(rows_jobs(cases), context)) return kCheckFailed;
  const auto steps = settings.rounds * static_cast<std::int64_t>(cases.size());
  const DeviceBenchmarkResults results = time_on_device(cases, settings, nullptr, steps, context);
  const std::vector<TileChoice> choices = fastest_choices(tasks, results, device.name);
  for (const TileChoice& choice : choices) table.put(choice);
  write_file_atomically("--tune-file", path, to_json_text(table));
  context.print(tuning_table(choices));
  if (!arguments.csv.empty()) write_file_atomically("--csv", arguments.csv, tuning_csv(tasks, choices));
  context.print(fmt::format("\nOn {}, L2 cold. Kept in {}; TILESCOPE_DISABLE_AUTOTUNE=1 leaves it unread.\n",
                            device.name, path));
  context.write_json(to_json_text(table));
  return kFine;
}

}  // namespace tilescope::cli
