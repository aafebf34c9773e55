// SPDX-License-Identifier: Apache-2.0
// `tilescope bench`: times of the kernels: on the CPU beside a matrix product of OpenBLAS on the same
// threads, on a device beside other libraries' attention.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "analysis/cli/bench/bench.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/expected_time.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/interruption.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/tensor_bytes.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/log.hpp"
#include "common/memory_budget.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases) {
  std::vector<RowsJob> jobs;
  for (const BenchmarkCase& c : cases) jobs.push_back({c.kernel, c.problem, c.direction, c.options});
  return jobs;
}

DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context) {
  Progress progress(context, "timing", steps);
  settings.on_sample = [&](const std::string& name) { progress.step(name); };
  settings.stopped = [] { return Interruption::came() != 0; };
  return run_device_benchmarks(cases, settings, peers);
}

std::vector<std::string> take_missing(std::vector<BenchmarkCase>& cases, std::size_t timed) {
  std::vector<std::string> missing;
  for (std::size_t i = timed; i < cases.size(); ++i) {
    const BenchmarkCase& c = cases[i];
    missing.push_back(fmt::format("{}, {}, {}", c.kernel->name, to_string(c.direction), describe(c.problem)));
  }
  cases.resize(timed);
  return missing;
}

void end_if_interrupted(std::size_t missing, bool anything_kept) {
  if (Interruption::came() == 0) return;
  throw Interrupted(Interruption::came(),
                    anything_kept ? fmt::format("interrupted; {} left out", counted(missing, "measurement"))
                                  : "interrupted before a measurement was complete; nothing is written");
}

namespace {

bool times_device(const BenchmarkCase& c) { return c.kernel->on_gpu(); }

/// What a command line asks to be timed, and what has come of it.
struct BenchRun {
  const BenchArguments& arguments;
  const CommandContext& context;
  RunRecord record;
  Refusals refusals;

  void take(BenchReport report) {
    context.print(report.text);
    std::move(report.runs.begin(), report.runs.end(), std::back_inserter(record.runs));
  }
  void on_cpu(std::vector<BenchmarkCase> cases, BenchmarkSettings settings);
  void on_device(std::vector<BenchmarkCase> cases, const DeviceBenchmarkSettings& settings);
  /// Whether there are cases that were timed; the others are noted as missing.
  bool any_timed(std::vector<BenchmarkCase>& cases, std::size_t timed) {
    const std::vector<std::string> missing = take_missing(cases, timed);
    record.missing.insert(record.missing.end(), missing.begin(), missing.end());
    return !cases.empty();
  }
};

void BenchRun::on_cpu(std::vector<BenchmarkCase> cases, BenchmarkSettings settings) {
  BenchmarkResults results;
  {
    Progress progress(context, "timing", settings.repetitions * static_cast<std::int64_t>(cases.size() + 1));
    settings.on_sample = [&](const std::string& name) { progress.step(name); };
    settings.stopped = [] { return Interruption::came() != 0; };
    results = run_benchmarks(cases, settings);
  }
  if (any_timed(cases, results.samples_s.size())) take(cpu_report(cases, results, settings));
}

void BenchRun::on_device(std::vector<BenchmarkCase> cases, const DeviceBenchmarkSettings& settings) {
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
  if (!any_timed(cases, results.times.size())) return;
  take(device_report(cases, results, refusals));
  if (peers) context.print(fmt::format("Peers: {}, in the same run.\n", peers->versions()));
  if (peers && arguments.sweep.drawn()) {
    context.print(strata_table(strata_of(record.runs, std::string(cases.front().kernel->name))));
  }
}

/// Leaves out cases on the CPU whose group does not fit this machine's memory.
/// @throws MachineLacks where nothing is left
void leave_out_too_large(BenchPlan& plan) {
  std::vector<BenchmarkCase> kept;
  for (const auto& group : groups_of(plan.cases)) {
    std::int64_t bytes = 0;
    for (const BenchmarkCase& c : group) {
      if (!times_device(c)) bytes += tensor_bytes(*c.kernel, c.problem, c.direction, c.options);
    }
    std::exception_ptr lack;
    try {
      require_memory(bytes, "this benchmark");
    } catch (const MachineLacks&) {
      lack = std::current_exception();
    }
    for (const BenchmarkCase& c : group) {
      if (!lack || times_device(c)) {
        kept.push_back(c);
      } else {
        plan.refusals.add(kernel_and_direction(c.kernel->name, c.direction), describe(c.problem), lack);
      }
    }
  }
  plan.cases = std::move(kept);
  if (plan.cases.empty()) plan.refusals.throw_first();
}

/// --gpus: the problems shared by GPUs.
int bench_ranks(const BenchArguments& arguments, const CommandContext& context, int rounds) {
  DeviceRuns runs;
  Refusals refusals;
  if (arguments.sweep.given()) {
    for (const SweepPoint& point : bench_subjects(arguments.sweep, arguments.problem, "cpu").points) {
      if (point.refusal) refusals.add("", "", point.refusal);
      if (!point.refusal) runs.problems.push_back(point.problem);
    }
  } else {
    runs.problems = {arguments.problem.problem()};
  }
  runs.directions = arguments.problem.directions();
  runs.schedules = arguments.gpus.all();
  runs.transport = arguments.gpus.transport();
  runs.processes = arguments.gpus.processes(true);
  runs.kernel = device_kernel(arguments.kernel);
  const int code = bench_distributed(context_of(context, runs.processes), runs, rounds);
  context.print(refusals.text(runs.problems.size()));
  return code;
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
  constexpr double kShort = 0.1;  // of which the usual product would be most
  if (settings.sample_seconds < kShort) settings.product_side /= 2;
  return settings;
}

DeviceBenchmarkSettings device_settings(const BenchArguments& arguments) {
  DeviceBenchmarkSettings settings;
  settings.rounds = count_or(settings.rounds, "rounds", arguments.rounds, 100);
  settings.timing.max_samples =
      count_or(settings.timing.max_samples, "samples", arguments.samples, 1'000'000);
  settings.timing.min_samples = std::min(settings.timing.min_samples, settings.timing.max_samples);
  if (!arguments.rest) return settings;
  settings.timing.rest_s = 1e-3 * parse_number("rest", *arguments.rest);
  if (!(settings.timing.rest_s >= 0 && settings.timing.rest_s <= 1)) {
    throw BadInput("rest", *arguments.rest, "must be from 0 to 1000 ms");
  }
  return settings;
}

/// What a run of a case takes on another problem.
double seconds_of_run(const BenchmarkCase& c, const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, c.direction);
  c.kernel->run(c.options, Direction::forward, tensors, nullptr);  // touches memory, and backward needs it
  const auto start = std::chrono::steady_clock::now();
  c.kernel->run(c.options, c.direction, tensors, nullptr);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What samples and the runs before them take, of the product too. A sample is a run at least.
double cpu_seconds(const std::vector<BenchmarkCase>& cases, const BenchmarkSettings& settings) {
  constexpr int kUntimed = 3;  // one is judged, one touches all memory, one says how many make a sample
  double seconds = settings.repetitions * settings.sample_seconds;
  for (const BenchmarkCase& c : cases) {
    const double run = expected_seconds(
        c.problem, c.direction, [&c](const AttentionProblem& small) { return seconds_of_run(c, small); },
        settings.repetitions + kUntimed);
    seconds += settings.repetitions * std::max(settings.sample_seconds, run) + kUntimed * run;
  }
  return seconds;
}

/// Takes the cases on the device out of `cases`.
std::vector<BenchmarkCase> take_device_cases(std::vector<BenchmarkCase>& cases) {
  const auto device =
      std::stable_partition(cases.begin(), cases.end(), [](const auto& c) { return !times_device(c); });
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
  leave_out_too_large(plan);
  if (!arguments.csv.empty()) require_writable_file("--csv", arguments.csv);
  if (!arguments.plot.empty()) require_plottable(plan.cases, arguments.plot);
  const std::vector<RowsJob> jobs = rows_jobs(plan.cases);
  const std::vector<BenchmarkCase> device_cases = take_device_cases(plan.cases);
  if (arguments.peers && device_cases.empty()) {
    throw BadInput("peers", "given", "needs a kernel on the device beside them: --kernel gpu:...");
  }
  for (const BenchmarkCase& c : device_cases) require_runnable(*c.kernel);
  if (!plan.cases.empty()) context.print(announcement("bench", cpu_seconds(plan.cases, on_cpu)));
  if (!arguments.rows.judge(jobs, context)) return kCheckFailed;
  BenchRun run{arguments, context, start_record(context.argv), std::move(plan.refusals)};
  RunRecord& record = run.record;
  const Interruption interruption;
  if (!device_cases.empty()) run.on_device(device_cases, on_devices);
  if (!plan.cases.empty()) run.on_cpu(plan.cases, on_cpu);
  if (record.runs.empty()) end_if_interrupted(record.missing.size(), false);
  std::size_t timed = 0;
  for (const RunEntry& entry : record.runs) timed += entry.passes.size();
  context.print(run.refusals.text(timed));
  record.refused = run.refusals.lines();
  arguments.rows.note_in(record.runs);
  if (!arguments.csv.empty()) write_file_atomically("--csv", arguments.csv, bench_csv(record));
  const bool whole = record.missing.empty();  // a figure would not say so
  if (!arguments.plot.empty() && whole) write_file_atomically("--plot", arguments.plot, bench_plot(record));
  context.write_record(record);
  end_if_interrupted(record.missing.size(), true);
  return kFine;
}

void add_cpu_options(BenchArguments& arguments, CLI::App& command) {
  add_value(command, "--threads", arguments.threads, "N", "CPU: OpenMP threads; default all");
  add_value(command, "--repetitions", arguments.repetitions, "N", "CPU: samples of each time; default 5");
  add_value(command, "--seconds", arguments.seconds, "S", "CPU: length of a sample; default 0.3");
}

void add_device_options(BenchArguments& arguments, CLI::App& command) {
  add_value(command, "--rounds", arguments.rounds, "N",
            "GPU: turns that each kernel takes on a problem; default 2");
  add_value(command, "--samples", arguments.samples, "N",
            "GPU: samples of a turn, of --peers too, at most; default 1000");
  add_value(command, "--rest", arguments.rest, "MS",
            "GPU: idle time before each sample, of --peers too; default 0.5 ms");
  command.add_flag(
      "--tune", arguments.tune,
      "GPU: time every tile shape of the kernels, with their warps and stages, and keep the fastest for "
      "later runs");
  add_value(command, "--tune-file", arguments.tune_file, "FILE.json",
            "GPU: where tuned tiles are kept and looked for");
}

void add_file_options(BenchArguments& arguments, CLI::App& command) {
  add_value(command, "--csv", arguments.csv, "FILE.csv",
            "write forward, backward and their sum as rows to FILE; with --tune all that was tried",
            kOutputGroup);
  add_value(command, "--plot", arguments.plot, "FILE.svg",
            "draw the rates of a sweep of lengths: forward, backward and their sum", kOutputGroup);
}

void add_peer_options(BenchArguments& arguments, CLI::App& command) {
  command.add_flag("--peers", arguments.peers, "GPU: time PyTorch's and Triton's kernels in the same run");
  add_value(command, "--python", arguments.python, "PROGRAM", "GPU: the Python that has them (python3)");
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
                         {"--tile",     "--backward",        "--order",   "--scan",     "--fp8-sums",
                          "--variant",  "--diagonal-slices", "--splits",  "--pack-gqa", "--query-splits",
                          "--threads",  "--repetitions",     "--seconds", "--rest",     "--samples",
                          "--tune",     "--tune-file",       "--csv",     "--plot",     "--peers",
                          "--no-verify"},
                         true);
  add_format_option(command, context);
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
