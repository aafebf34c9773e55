// SPDX-License-Identifier: Apache-2.0
// `tilescope bench`: times of the CPU kernels, beside a matrix product of OpenBLAS on the same threads.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "analysis/cli/command.hpp"
#include "analysis/cli/kernel_options.hpp"
#include "analysis/cli/parse_text.hpp"
#include "analysis/cli/problem_options.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/closed_form.hpp"
#include "analysis/memory_budget.hpp"
#include "analysis/report_format.hpp"
#include "analysis/run_record.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"

namespace tilescope::cli {
namespace {

struct BenchArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  std::optional<std::string> threads, repetitions, seconds;
};

/// What the kernels' speed is judged by: fp32 at N = 4096, d = 64 and 128, and a single head, which leaves
/// nothing but its blocks to work on in parallel.
std::vector<AttentionProblem> default_problems() {
  std::vector<AttentionProblem> problems;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t heads : {4, 1}) {
      problems.push_back(
          {.heads = heads, .heads_kv = heads, .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = head_dim});
    }
  }
  return problems;
}

/// Of all tensors that a case holds while it is timed. [bytes]
std::int64_t bytes_needed(const BenchmarkCase& c) {
  std::vector<TileProgram> programs = c.kernel->programs(Direction::forward, c.problem, c.options);
  if (c.direction == Direction::backward) {
    const auto backward = c.kernel->programs(Direction::backward, c.problem, c.options);
    programs.insert(programs.end(), backward.begin(), backward.end());
  }
  return tensor_bytes(programs);
}

std::vector<BenchmarkCase> plan_cases(const BenchArguments& arguments, int threads) {
  const std::vector<AttentionProblem> problems =
      arguments.problem.given() ? std::vector{arguments.problem.problem()} : default_problems();
  std::vector<Direction> directions = {Direction::forward, Direction::backward};
  if (arguments.problem.pass_given()) directions = arguments.problem.directions();
  std::vector<BenchmarkCase> cases;
  std::int64_t bytes = 0;
  for (const Kernel* kernel : arguments.kernel.kernels({"cpu:flash2"})) {
    if (!kernel->name.starts_with("cpu:")) {
      throw BadInput("kernel", std::string(kernel->name),
                     "must be one of the CPU; `tilescope profile --time` times kernels on a device");
    }
    for (const AttentionProblem& problem : problems) {
      const ProgramOptions options = arguments.kernel.program_options(*kernel, problem);
      for (const Direction direction : directions) {
        if (!arguments.problem.pass_given() && kernel->refusal(problem, direction, options)) continue;
        require_supported(*kernel, problem, direction, options);
        cases.push_back({kernel, problem, direction, options, threads});
        bytes += bytes_needed(cases.back());
      }
    }
  }
  require_memory(bytes, "these benchmarks");
  return cases;
}

TimeRecord time_record(const std::vector<double>& samples_s) {
  std::vector<double> sorted = samples_s;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t count = sorted.size();
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - mean) * (sample - mean);
  return {.median_s = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
          .min_s = sorted.front(),
          .noise = std::sqrt(squares / static_cast<double>(count)) / mean,
          .samples_s = samples_s};
}

/// The direction as one pass of the record, since its launches are not timed apart: "delta+dkdvdq+convert".
PassRecord timed_pass(const BenchmarkCase& c, const TimeRecord& time) {
  PassRecord pass;
  pass.direction = c.direction;
  pass.tile = c.direction == Direction::forward ? c.options.forward_tile : c.options.backward_tile;
  for (const TileProgram& program : c.kernel->programs(c.direction, c.problem, c.options)) {
    if (!pass.name.empty()) pass.name += "+";
    pass.name += to_string(program.name);
    pass.flops += useful_flops(program);
    pass.executed_flops += executed_flops(program);
  }
  pass.time = time;
  pass.counters["threads"] = std::int64_t{c.threads};
  return pass;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// The table and the record of all cases.
struct BenchReport {
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "problem", "passes", "tile", "median", "noise", "rate", "of the product"}};
  std::vector<RunEntry> runs;
};

BenchReport report_of(const std::vector<BenchmarkCase>& cases, const BenchmarkResults& results,
                      const BenchmarkSettings& settings) {
  BenchReport report;
  std::optional<double> product_rate;  // [FLOP/s]
  for (const ProductTimes& product : results.products) {
    const TimeRecord time = time_record(product.samples_s);
    product_rate = static_cast<double>(product.flops) / time.median_s;
    report.rows.push_back({"sgemm", fmt::format("{0} x {0} x {0}", settings.product_side), "", "",
                           format_seconds(time.median_s), percent(time.noise),
                           format_flops(*product_rate) + "/s", percent(1)});
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const BenchmarkCase& c = cases[i];
    PassRecord pass = timed_pass(c, time_record(results.samples_s[i]));
    const double rate = static_cast<double>(useful_flops(c.problem, c.direction)) / pass.time->median_s;
    report.rows.push_back({std::string(c.kernel->name), describe(c.problem), pass.name,
                           fmt::format("{}x{}", pass.tile.block_m, pass.tile.block_n),
                           format_seconds(pass.time->median_s), percent(pass.time->noise),
                           format_flops(rate) + "/s", product_rate ? percent(rate / *product_rate) : "?"});
    if (product_rate) pass.counters["sgemm_flops_per_second"] = *product_rate;
    const bool same_run = !report.runs.empty() && report.runs.back().kernel == c.kernel->name &&
                          report.runs.back().problem == c.problem;
    if (!same_run) {
      RunEntry& run = report.runs.emplace_back();
      run.problem = c.problem;
      run.kernel = c.kernel->name;
    }
    report.runs.back().passes.push_back(std::move(pass));
  }
  return report;
}

int bench(const BenchArguments& arguments, const CommandContext& context) {
  const auto bounded = [](const char* field, const std::optional<std::string>& text, int otherwise,
                          int most) {
    if (!text) return otherwise;
    const std::int64_t value = parse_integer(field, *text);
    if (value < 1 || value > most) throw BadInput(field, *text, fmt::format("must lie in 1 ... {}", most));
    return static_cast<int>(value);
  };
  const int threads = bounded("threads", arguments.threads, omp_get_max_threads(), 4096);
  BenchmarkSettings settings;
  settings.repetitions = bounded("repetitions", arguments.repetitions, settings.repetitions, 1000);
  if (arguments.seconds) {
    settings.sample_seconds = parse_number("seconds", *arguments.seconds);
    if (!(settings.sample_seconds > 0 && settings.sample_seconds <= 60)) {
      throw BadInput("seconds", *arguments.seconds, "must be above 0 and at most 60");
    }
  }
  const std::vector<BenchmarkCase> cases = plan_cases(arguments, threads);

  BenchmarkResults results;
  {
    Progress progress(context, "timing", settings.repetitions * static_cast<std::int64_t>(cases.size() + 1));
    settings.on_sample = [&](const std::string& name) { progress.step(name); };
    results = run_benchmarks(cases, settings);
  }
  BenchReport report = report_of(cases, results, settings);
  const std::vector<bool> right = {false, false, false, false, true, true, true, true};
  context.print(align_columns(report.rows, "", right));
  context.print(fmt::format(
      "\n{} threads. The rate counts useful FLOP: 2 matrix products forward, 5 backward, over the visible "
      "pairs.\n{}\n",
      threads,
      results.product_library.empty()
          ? "No matrix product to compare with: OpenBLAS was not found; libopenblas0 would bring it."
          : "sgemm: " + results.product_library + ", on the same threads in the same run."));
  RunRecord record = start_record(context.argv);
  record.runs = std::move(report.runs);
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_bench_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<BenchArguments>();
  CLI::App& command =
      add_command(app, context, "bench", "times of the CPU kernels, beside a BLAS matrix product",
                  [arguments, &context] { return bench(*arguments, context); });
  arguments->problem.add_to(command);
  arguments->kernel.add_to(command, true);
  command.add_option("--threads", arguments->threads, "OpenMP threads (default: all)");
  command.add_option("--repetitions", arguments->repetitions, "samples of each time (default: 5)");
  command.add_option("--seconds", arguments->seconds, "length of a sample (default: 0.3)");
}

}  // namespace tilescope::cli
