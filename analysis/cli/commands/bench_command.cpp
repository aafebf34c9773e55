// SPDX-License-Identifier: Apache-2.0
// `tilescope bench`: times of the kernels: on the CPU beside a matrix product of OpenBLAS on the same
// threads, on a device beside other libraries' attention.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "analysis/cli/bench/bench_plan.hpp"
#include "analysis/cli/bench/bench_rates.hpp"
#include "analysis/cli/bench/bench_tune.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed_commands.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/tables/bench_report.hpp"
#include "analysis/cli/verify/rows_before.hpp"
#include "analysis/counts/run_summary.hpp"
#include "analysis/counts/tensor_bytes.hpp"
#include "analysis/records/files/atomic_file.hpp"
#include "analysis/records/files/output_path.hpp"
#include "analysis/records/run_record.hpp"
#include "common/log.hpp"
#include "common/memory_budget.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/benchmarks/peer_process.hpp"

namespace tilescope::cli {
namespace {

struct BenchArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  RowsBefore rows;
  BenchSweepOption sweep;
  GpuOptions gpus;
  std::optional<std::string> threads, repetitions, seconds, rounds, rest;
  bool peers = false, tune = false;
  std::string tune_file, csv, plot;
  std::string python = "python3";
};

bool on_device(const BenchmarkCase& c) { return c.kernel->name.starts_with("gpu:"); }

std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases) {
  std::vector<RowsJob> jobs;
  for (const BenchmarkCase& c : cases) jobs.push_back({c.kernel, c.problem, c.direction, c.options});
  return jobs;
}

void bench_cpu(const std::vector<BenchmarkCase>& cases, BenchmarkSettings settings,
               const CommandContext& context, RunRecord& record) {
  std::int64_t bytes = 0;
  for (const BenchmarkCase& c : cases) bytes += tensor_bytes(*c.kernel, c.problem, c.direction, c.options);
  require_memory(bytes, "these benchmarks");
  BenchmarkResults results;
  {
    Progress progress(context, "timing", settings.repetitions * static_cast<std::int64_t>(cases.size() + 1));
    settings.on_sample = [&](const std::string& name) { progress.step(name); };
    results = run_benchmarks(cases, settings);
  }
  BenchReport report = cpu_report(cases, results, settings);
  context.print(report.text);
  std::move(report.runs.begin(), report.runs.end(), std::back_inserter(record.runs));
}

/// @param steps  of the progress that is shown, 0: not known
DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context) {
  Progress progress(context, "timing", steps);
  settings.on_sample = [&](const std::string& name) { progress.step(name); };
  return run_device_benchmarks(cases, settings, peers);
}

void bench_device(const std::vector<BenchmarkCase>& cases, const DeviceBenchmarkSettings& settings,
                  const BenchArguments& arguments, const CommandContext& context, RunRecord& record) {
  std::unique_ptr<PeerProcess> peers;
  if (arguments.peers) {
    try {
      peers = std::make_unique<PeerProcess>(arguments.python);
      record.machine.libraries = peers->versions();
    } catch (const MachineLacks& lack) {
      log_text(LogLevel::warning, [&] { return std::string("no peers: ") + lack.what(); });
      context.print(fmt::format("{}\nTimed without them:\n\n", lack.what()));
    }
  }
  const DeviceBenchmarkResults results = time_on_device(cases, settings, peers.get(), 0, context);
  record.machine.name = results.device;
  record.machine.cuda = results.driver;
  BenchReport report = device_report(cases, results);
  context.print(report.text);
  if (peers) context.print(fmt::format("Peers: {}, in the same run.\n", peers->versions()));
  std::move(report.runs.begin(), report.runs.end(), std::back_inserter(record.runs));
}

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

/// Times every choice of the kernels and keeps the fastest.
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

/// --gpus: the problems shared by GPUs.
int bench_ranks(const BenchArguments& arguments, const CommandContext& context, int rounds) {
  DeviceRuns runs;
  if (arguments.sweep.given()) {
    for (const SweepPoint& point : bench_subjects(arguments.sweep, arguments.problem, "cpu").points)
      runs.problems.push_back(point.problem);
  } else {
    runs.problems = {arguments.problem.problem()};
  }
  runs.directions = arguments.problem.directions();
  runs.schedules = arguments.gpus.all();
  runs.transport = arguments.gpus.transport();
  runs.processes = arguments.gpus.processes(true);
  runs.kernel = device_kernel(arguments.kernel);
  return bench_distributed(context_of(context, runs.processes), runs, rounds);
}

int count_or(int otherwise, const char* field, const std::optional<std::string>& text, int most) {
  return text ? static_cast<int>(parse_integer_in(field, *text, 1, most)) : otherwise;
}

BenchmarkSettings cpu_settings(const BenchArguments& arguments) {
  BenchmarkSettings settings;
  settings.repetitions = count_or(settings.repetitions, "repetitions", arguments.repetitions, 1000);
  if (!arguments.seconds) return settings;
  settings.sample_seconds = parse_number("seconds", *arguments.seconds);
  if (!(settings.sample_seconds > 0 && settings.sample_seconds <= 60)) {
    throw BadInput("seconds", *arguments.seconds, "must be above 0 and at most 60");
  }
  return settings;
}

DeviceBenchmarkSettings device_settings(const BenchArguments& arguments) {
  DeviceBenchmarkSettings settings;
  settings.rounds = count_or(settings.rounds, "rounds", arguments.rounds, 100);
  if (!arguments.rest) return settings;
  settings.timing.rest_s = 1e-3 * parse_number("rest", *arguments.rest);
  if (!(settings.timing.rest_s >= 0 && settings.timing.rest_s <= 1)) {
    throw BadInput("rest", *arguments.rest, "must be from 0 to 1000 ms");
  }
  return settings;
}

/// Takes the cases on the device out of `cases`.
std::vector<BenchmarkCase> take_device_cases(std::vector<BenchmarkCase>& cases) {
  const auto device =
      std::stable_partition(cases.begin(), cases.end(), [](const auto& c) { return !on_device(c); });
  const std::vector<BenchmarkCase> taken(device, cases.end());
  cases.erase(device, cases.end());
  return taken;
}

int bench(BenchArguments& arguments, const CommandContext& context) {
  const int threads = count_or(omp_get_max_threads(), "threads", arguments.threads, 4096);
  const BenchmarkSettings on_cpu = cpu_settings(arguments);
  const DeviceBenchmarkSettings on_devices = device_settings(arguments);
  arguments.gpus.require_complete();
  if (arguments.gpus.given())
    return bench_ranks(arguments, context, count_or(10, "rounds", arguments.rounds, 100));
  if (arguments.tune) return tune(arguments, on_devices, context);
  BenchPlan plan = plan_bench(bench_subjects(arguments.sweep, arguments.problem, "cpu"), arguments.problem,
                              arguments.kernel, arguments.tune_file, threads);
  if (!arguments.csv.empty()) require_writable_file("--csv", arguments.csv);
  if (!arguments.plot.empty()) require_plottable(plan.cases, arguments.plot);
  const std::vector<RowsJob> jobs = rows_jobs(plan.cases);
  const std::vector<BenchmarkCase> device_cases = take_device_cases(plan.cases);
  if (arguments.peers && device_cases.empty()) {
    throw BadInput("peers", "given", "needs a kernel on the device beside them: --kernel gpu:...");
  }
  for (const BenchmarkCase& c : device_cases) require_runnable(*c.kernel);
  if (!arguments.rows.judge(jobs, context)) return kCheckFailed;
  RunRecord record = start_record(context.argv);
  if (!device_cases.empty()) bench_device(device_cases, on_devices, arguments, context, record);
  if (!plan.cases.empty()) bench_cpu(plan.cases, on_cpu, context, record);
  for (const std::string& line : plan.left_out) {
    log_text(LogLevel::warning, [&] { return "left out: " + line; });
    context.print("left out: " + line + "\n");
  }
  arguments.rows.note_in(record.runs);
  if (!arguments.csv.empty()) write_file_atomically("--csv", arguments.csv, bench_csv(record));
  if (!arguments.plot.empty()) write_file_atomically("--plot", arguments.plot, bench_plot(record));
  context.write_record(record);
  return kFine;
}

void add_cpu_options(BenchArguments& arguments, CLI::App& command) {
  command.add_option("--threads", arguments.threads, "CPU: OpenMP threads; default all")->type_name("N");
  command.add_option("--repetitions", arguments.repetitions, "CPU: samples of each time; default 5")
      ->type_name("N");
  command.add_option("--seconds", arguments.seconds, "CPU: length of a sample; default 0.3")->type_name("S");
}

void add_device_options(BenchArguments& arguments, CLI::App& command) {
  command
      .add_option("--rounds", arguments.rounds, "GPU: turns that each kernel takes on a problem; default 2")
      ->type_name("N");
  command
      .add_option("--rest", arguments.rest,
                  "GPU: idle time before each sample; default 0.5 ms, which --peers have, too")
      ->type_name("MS");
  command.add_flag(
      "--tune", arguments.tune,
      "GPU: time every tile shape of the kernels, with their warps and stages, and keep the fastest for "
      "later runs");
  command.add_option("--tune-file", arguments.tune_file, "GPU: where tuned tiles are kept and looked for")
      ->type_name("FILE.json");
}

void add_file_options(BenchArguments& arguments, CLI::App& command) {
  command
      .add_option("--csv", arguments.csv,
                  "write forward, backward and their sum as rows to FILE; with --tune all that was tried")
      ->type_name("FILE.csv")
      ->group(kOutputGroup);
  command
      .add_option("--plot", arguments.plot,
                  "draw the rates of a sweep of lengths: forward, backward and their sum")
      ->type_name("FILE.svg")
      ->group(kOutputGroup);
}

void add_peer_options(BenchArguments& arguments, CLI::App& command) {
  command.add_flag("--peers", arguments.peers, "GPU: time PyTorch's and Triton's kernels in the same run");
  command.add_option("--python", arguments.python, "GPU: the Python that has them (python3)")
      ->type_name("PROGRAM");
}

}  // namespace

void add_bench_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<BenchArguments>();
  CLI::App& command =
      add_command(app, context, "bench",
                  "times of the kernels, beside a BLAS matrix product or other libraries' attention",
                  [arguments, &context] { return bench(*arguments, context); });
  add_raw_option(command, context);
  arguments->problem.add_to(command);
  refuse_v_transposed(command);
  arguments->kernel.add_to(command, true);
  arguments->rows.add_to(command);
  arguments->sweep.add_to(command);
  add_cpu_options(*arguments, command);
  add_device_options(*arguments, command);
  add_file_options(*arguments, command);
  add_peer_options(*arguments, command);
  arguments->gpus.add_to(command,
                         {"--tile", "--backward", "--order", "--scan", "--fp8-sums", "--diagonal-slices",
                          "--threads", "--repetitions", "--seconds", "--rest", "--tune", "--tune-file",
                          "--csv", "--plot", "--peers", "--no-verify"},
                         true);
  show_examples(
      command,
      {{"bench --kernel cpu:flash2 --heads 4 --seqlen 2k",
        "one problem, beside the matrix product of a BLAS"},
       {"bench --sweep seqlen=256..1k --heads 2 --csv rates.csv --plot rates.svg", "rates against length"},
       {"bench --gpus 2 --schedule zigzag,all-gather --preset llama3-8b --pass fwd+bwd",
        "two GPUs, beside one with the whole problem"},
       {"bench --sweep triton --peers", "on a device, a named list of problems beside PyTorch and Triton"}});
}

}  // namespace tilescope::cli
