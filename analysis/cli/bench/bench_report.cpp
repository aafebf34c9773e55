// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "common/log.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

using Rows = std::vector<Row>;

TimeRecord time_record(const std::vector<double>& samples_s) {
  std::vector<double> sorted = samples_s;
  std::ranges::sort(sorted);
  const std::size_t count = sorted.size();
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - mean) * (sample - mean);
  return {.median_s = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
          .min_s = sorted.front(),
          .noise = std::sqrt(squares / static_cast<double>(count)) / mean,
          .samples_s = samples_s};
}

/// A product this far below what the arithmetic units allow is no measure of a kernel.
constexpr double kWeakBaseline = 0.5;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Of one sample nobody knows.
Cell noise_cell(const TimeRecord& time) {
  return time.samples_s.size() > 1 ? as_percent(time.noise) : Cell("-");
}

/// "delta+dkdvdq+convert, ordered": with the choices that neither the tile nor the problem shows.
std::string passes_text(const PassRecord& pass) {
  std::string text = pass.name;
  if (pass.choices.variant) text += ", " + *pass.choices.variant;
  if (pass.choices.fp8_sums) text += ", " + *pass.choices.fp8_sums + " sums";
  if (pass.choices.backward == BackwardOrder::ordered) text += ", ordered";
  return text;
}

/// A run of the case, with the orders that the kernel would not take by itself.
RunEntry timed_entry(const BenchmarkCase& c) {
  RunEntry run = entry_of(*c.kernel, c.problem);
  const ProgramOptions own = c.kernel->default_options(c.problem);
  if (c.options.order != own.order) run.order = c.options.order;
  if (c.options.scan != own.scan) run.scan = c.options.scan;
  return run;
}

/// To the run of that kernel and problem that lacks the direction; the same on other tiles is another run.
const RunEntry& add_pass(std::vector<RunEntry>& runs, const RunEntry& ran, PassRecord pass) {
  const auto same = [&](const RunEntry& run) {
    return run.kernel == ran.kernel && run.problem == ran.problem && !run.timed_pass(pass.direction);
  };
  auto run = std::ranges::find_if(runs, same);
  if (run == runs.end()) run = runs.insert(runs.end(), ran);
  run->passes.push_back(std::move(pass));
  return *run;
}

/// CUDA events resolve half a microsecond; more digits would only fill the record.
std::vector<double> in_nanoseconds(std::vector<double> samples_s) {
  for (double& sample : samples_s) sample = std::round(sample * 1e9) * 1e-9;
  return samples_s;
}

/// The rate of forward and backward together, once the run has both.
std::optional<BenchRate> sum_of(const RunEntry& run) {
  for (const BenchRate& rate : bench_rates(run)) {
    if (!rate.direction) return rate;
  }
  return std::nullopt;
}

/// Adds the pass to the runs, and its row to the table: below it the sum of both directions, once they are
/// there.
void add_device_pass(Rows& rows, std::vector<RunEntry>& runs, const RunEntry& ran, PassRecord pass) {
  const std::string& kernel = ran.kernel;
  const AttentionProblem& problem = ran.problem;
  const auto tera = [](double flops_per_second) {
    return as_number(fmt::format("{:.1f}", 1e-12 * flops_per_second), 1e-12 * flops_per_second);
  };
  const std::optional<double> clock_hz = pass.time->sm_clock_hz;
  const double kcycles = 1e-3 * pass.time->median_s * clock_hz.value_or(0);
  rows.push_back(
      {kernel, as_problem(problem), passes_text(pass), tile_text(pass), in_seconds(pass.time->median_s),
       noise_cell(*pass.time), as_count(static_cast<std::int64_t>(pass.time->samples_s.size())),
       tera(paper_rate(problem, pass)),
       clock_hz ? as_number(fmt::format("{:.0f} MHz", 1e-6 * *clock_hz), *clock_hz, "Hz") : Cell("-"),
       clock_hz ? as_number(fmt::format("{:.0f}", kcycles), kcycles) : Cell("-")});
  const auto sum = sum_of(add_pass(runs, ran, std::move(pass)));
  if (!sum) return;
  rows.push_back({kernel, as_problem(problem), sum->what(), "", in_seconds(sum->median_s), "", "",
                  tera(sum->paper_flops_per_second), "", ""});
}

/// Adds the samples of a case.
void add_case(Rows& rows, std::vector<RunEntry>& runs, const BenchmarkCase& c, const DeviceTimes& times) {
  PassRecord pass = timed_pass(c, in_nanoseconds(times.samples_s));
  if (times.throttled > 0) {
    pass.time->throttled = times.throttled;
    log_text(LogLevel::warning, [&] {
      return fmt::format("{} {}: {} samples dropped, the clock was low", c.kernel->name, describe(c.problem),
                         times.throttled);
    });
  }
  pass.time->sm_clock_hz = times.sm_clock_hz;
  add_device_pass(rows, runs, timed_entry(c), std::move(pass));
}

/// Adds those of a peer.
void add_peer(Rows& rows, std::vector<RunEntry>& runs, const PeerTimes& peer) {
  PassRecord pass;
  pass.name = to_string(peer.direction);
  pass.direction = peer.direction;
  pass.tile = kUnknownTile;
  pass.flops = pass.executed_flops = useful_flops(peer.problem, peer.direction);
  if (peer.direction == Direction::forward) pass.exponentials = peer.problem.visible_pairs();
  pass.time = time_record(in_nanoseconds(peer.times.samples_s));
  if (peer.times.sm_clock_hz > 0) pass.time->sm_clock_hz = peer.times.sm_clock_hz;
  RunEntry ran;
  ran.problem = peer.problem;
  ran.kernel = peer.peer;
  add_device_pass(rows, runs, ran, std::move(pass));
}

}  // namespace

PassRecord timed_pass(const BenchmarkCase& c, const std::vector<double>& samples_s) {
  PassRecord pass;
  pass.direction = c.direction;
  const auto programs = c.kernel->programs(c.direction, c.problem, c.options);
  pass.tile = programs.front().tile;
  bool goes_on = false;  // in the launch of the program before
  for (const TileProgram& program : programs) {
    if (!pass.name.empty()) pass.name += goes_on && program.single_launch ? "&" : "+";
    goes_on = program.single_launch;
    pass.name += to_string(program.name);
    pass.flops += useful_flops(program);
    pass.executed_flops += executed_flops(program);
    pass.exponentials += exponentials(program);
    note_choices(pass.choices, program);
  }
  pass.time = time_record(samples_s);
  return pass;
}

BenchReport cpu_report(const std::vector<BenchmarkCase>& cases, const BenchmarkResults& results,
                       const BenchmarkSettings& settings) {
  Rows rows = {{"kernel", "problem", "passes", "tile", "median", "noise", "rate", "of the product"}};
  BenchReport report;
  std::optional<double> product_rate;  // [FLOP/s]
  std::string weak;
  for (const ProductTimes& product : results.products) {
    const TimeRecord time = time_record(product.samples_s);
    product_rate = static_cast<double>(product.flops) / time.median_s;
    const bool is_weak = *product_rate < kWeakBaseline * product.fma_flops_per_second;
    if (is_weak) {
      log_text(LogLevel::warning, [] { return std::string("the matrix product is a weak baseline"); });
      weak += fmt::format(
          "A weak baseline: it reaches {} of the {}/s that multiply-adds on {} threads allow. Shares of it "
          "flatter the kernels.\n",
          percent(*product_rate / product.fma_flops_per_second), format_flops(product.fma_flops_per_second),
          product.threads);
    }
    rows.push_back({is_weak ? "weak sgemm" : "sgemm", fmt::format("{0} x {0} x {0}", settings.product_side),
                    "", "", in_seconds(time.median_s), noise_cell(time), in_flops_per_second(*product_rate),
                    as_percent(1)});
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const BenchmarkCase& c = cases[i];
    PassRecord pass = timed_pass(c, results.samples_s[i]);
    pass.counters["threads"] = std::int64_t{c.threads};
    const std::string kernel(c.kernel->name);
    const auto add_row = [&](const std::string& passes, const std::string& tile, double median_s,
                             const Cell& noise, double rate) {
      rows.push_back({kernel, as_problem(c.problem), passes, tile, in_seconds(median_s), noise,
                      in_flops_per_second(rate),
                      product_rate ? as_percent(rate / *product_rate) : Cell("-")});
    };
    add_row(passes_text(pass), tile_text(pass), pass.time->median_s, noise_cell(*pass.time),
            static_cast<double>(useful_flops(c.problem, c.direction)) / pass.time->median_s);
    if (product_rate) pass.counters["sgemm_flops_per_second"] = *product_rate;
    const auto sum = sum_of(add_pass(report.runs, timed_entry(c), std::move(pass)));
    if (sum) add_row(sum->what(), "", sum->median_s, "", sum->useful_flops_per_second);
  }
  report.text = Table{rows};
  report.text += fmt::format(
      "\n{}. The rate counts useful FLOP: 2 matrix products forward, 5 backward, over the visible "
      "pairs.\n{}\n",
      counted(cases.front().threads, "thread"),
      results.product_library.empty()
          ? "No matrix product to compare with: OpenBLAS was not found; libopenblas0 would bring it."
          : "sgemm: " + results.product_library + ", on the same threads in the same run.");
  report.text += weak;
  return report;
}

BenchReport device_report(const std::vector<BenchmarkCase>& cases, const DeviceBenchmarkResults& results,
                          Refusals& refusals) {
  Rows rows = {{"kernel", "problem", "passes", "tile", "median", "noise", "samples", "TFLOP/s", "SM clock",
                "kcycles"}};
  BenchReport report;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const BenchmarkCase& c = cases[i];
    const DeviceTimes& times = results.times[i];
    if (times.samples_s.empty()) {
      refusals.add(kernel_and_direction(c.kernel->name, c.direction), describe(c.problem), times.refusal);
    } else {
      add_case(rows, report.runs, c, times);
    }
    const bool group_ends =
        i + 1 == cases.size() || cases[i + 1].problem != c.problem || cases[i + 1].direction != c.direction;
    if (!group_ends) continue;
    for (const PeerTimes& peer : results.peers) {
      if (peer.problem != c.problem || peer.direction != c.direction) continue;
      const auto add = [&] {
        if (peer.times.samples_s.empty()) std::rethrow_exception(peer.times.refusal);
        add_peer(rows, report.runs, peer);
      };
      refusals.allow(kernel_and_direction(peer.peer, peer.direction), describe(peer.problem), add);
    }
  }
  for (RunEntry& run : report.runs) run.l2 = "cold";
  if (report.runs.empty()) refusals.throw_first();
  report.text = Table{rows};
  report.text += fmt::format(
      "\nOn {}, L2 cold. TFLOP/s by the papers' count: 4 N^2 D a head forward, half of "
      "it with a causal mask, 2.5 times as much backward. Of the SMs: their clock, and the "
      "thousands of cycles that the median is at it; of a peer, the clock right after it.\n",
      results.device);
  return report;
}

Table strata_table(const std::vector<Stratum>& strata) {
  Rows rows = {{"stratum", "direction", "problems", "of the best peer", "worst", "which"}};
  for (const Stratum& stratum : strata) {
    rows.push_back({stratum.name, to_string(stratum.direction), as_count(stratum.problems),
                    as_number(fmt::format("{:.3f}", stratum.mean), stratum.mean),
                    as_number(fmt::format("{:.3f}", stratum.worst), stratum.worst), stratum.worst_problem});
  }
  return {.rows = rows, .title = "\nBy stratum"};
}

}  // namespace tilescope::cli
