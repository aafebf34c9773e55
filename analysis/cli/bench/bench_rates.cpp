// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/cli/bench/bench.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/charts.hpp"
#include "common/errors.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

/// What panels are drawn for: the problem with any batch and length.
AttentionProblem kind_of(AttentionProblem problem) {
  problem.batch = problem.seqlen_q = problem.seqlen_k = 1;
  problem.seed = 0;
  problem.key_lengths.clear();
  return problem;
}

/// "H32 D64 fp16 causal scale 1.3".
std::string kind_text(const AttentionProblem& kind) {
  std::string text = describe(kind);
  for (const std::string part : {"B1 ", "N1 "}) {
    if (const std::size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  }
  return text;
}

LineSeries line_of(const RunRecord& record, const AttentionProblem& kind, const std::string& kernel,
                   const std::string& what) {
  LineSeries line{kernel, {}, {}};
  for (const RunEntry& run : record.runs) {
    if (run.kernel != kernel || kind_of(run.problem) != kind) continue;
    for (const BenchRate& rate : bench_rates(run)) {
      if (rate.what() != what) continue;
      line.points.push_back({static_cast<double>(run.problem.seqlen_q), 1e-12 * rate.paper_flops_per_second});
    }
  }
  return line;
}

std::optional<Drawing> rate_drawing(const RunRecord& record, const AttentionProblem& kind,
                                    const std::string& what, FigureLooks& looks) {
  LineChart chart;
  std::vector<std::int64_t> lengths;
  std::vector<std::string> kernels;
  double highest = 0;
  for (const RunEntry& run : record.runs) add_new(kernels, run.kernel);
  for (const std::string& kernel : kernels) {
    LineSeries line = line_of(record, kind, kernel, what);
    if (line.points.size() < 2) continue;
    const auto ran = std::ranges::find(record.runs, kernel, &RunEntry::kernel);
    line.look = looks.take(kernel, ran->algorithm);
    line.label = short_name(kernel);
    for (const ChartPoint& point : line.points) {
      lengths.push_back(std::llround(point.x));
      highest = std::max(highest, 1.05 * point.y);
    }
    chart.series.push_back(std::move(line));
  }
  if (chart.series.empty()) return std::nullopt;
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  chart.x = doubling_axis("sequence length N", lengths, format_length);
  chart.y = {"TFLOP/s", linear_ticks(highest, number), 0, highest, false, nullptr};
  return draw(chart);
}

/// diagonal_slices,fp8_sums,ordered,variant; of another library's kernel nobody knows the last three.
std::string choices_columns(const AttentionProblem& problem, const PassRecord& pass) {
  const PassChoices& choices = pass.choices;
  std::string sums, ordered, variant;
  if (pass.tile != kUnknownTile) {
    if (is_fp8(problem.dtype)) sums = choices.fp8_sums.value_or(std::string(to_string(Fp8Sums::fp32)));
    ordered = choices.backward == BackwardOrder::ordered ? "yes" : "no";
    variant = choices.variant.value_or(std::string(to_string(Variant::own)));
  }
  return fmt::format("{},{},{},{}", choices.diagonal_slices.value_or(1), sums, ordered, variant);
}

/// Without commas: "documents:100 300 57".
std::string mask_column(const MaskRule& rule) {
  std::string text = to_string(rule);
  std::replace(text.begin(), text.end(), ',', ' ');
  return text;
}

std::string csv_row(const RunRecord& record, const RunEntry& run, const BenchRate& rate) {
  const AttentionProblem& p = run.problem;
  std::string measured = ",,,,,,,,";
  if (rate.pass) {
    const TimeRecord& time = *rate.pass->time;
    const auto samples = time.samples.value_or(static_cast<std::int64_t>(time.samples_s.size()));
    measured = fmt::format("{},{},{},{:.9g},{},{}", rate.pass->name, to_string(rate.pass->tile),
                           choices_columns(p, *rate.pass), time.min_s,
                           samples > 1 ? fmt::format("{:.4g}", time.noise) : "", samples);
  }
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.9g},{},{:.9g},{},{:.6g},{:.6g}\n",
                     record.machine.name.value_or(record.machine.cpu.value_or("")), run.kernel, p.batch,
                     p.heads, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, to_string(p.dtype),
                     p.causal ? "yes" : "no", p.window_left, p.window_right, mask_column(p.mask),
                     fmt::join(p.key_lengths, " "), p.page_size, p.scale(), rate.what(), rate.median_s,
                     measured, 1e-12 * rate.paper_flops_per_second, 1e-12 * rate.useful_flops_per_second);
}

}  // namespace

std::string BenchRate::what() const {
  return direction ? std::string(to_string(*direction)) : "forward+backward";
}

double paper_rate(const AttentionProblem& problem, const PassRecord& pass) {
  return static_cast<double>(paper_flops(problem, pass.direction)) / pass.time->median_s;
}

std::vector<BenchRate> bench_rates(const RunEntry& run) {
  std::vector<BenchRate> rates;
  double seconds = 0, paper = 0, useful = 0;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const PassRecord* pass = run.timed_pass(direction);
    if (!pass) continue;
    const double of_useful = static_cast<double>(useful_flops(run.problem, direction));
    rates.push_back({direction, pass, pass->time->median_s, paper_rate(run.problem, *pass),
                     of_useful / pass->time->median_s});
    seconds += pass->time->median_s;
    paper += static_cast<double>(paper_flops(run.problem, direction));
    useful += of_useful;
  }
  if (rates.size() == 2) rates.push_back({{}, nullptr, seconds, paper / seconds, useful / seconds});
  return rates;
}

std::string bench_csv(const RunRecord& record) {
  std::string text =
      "device,kernel,batch,heads,heads_kv,seqlen_q,seqlen_k,head_dim,dtype,causal,window_left,window_right,"
      "mask,key_lengths,page_size,scale,direction,median_s,passes,tile,diagonal_slices,fp8_sums,ordered,"
      "variant,min_s,noise,"
      "samples,"
      "paper_tflops_per_second,useful_tflops_per_second\n";
  for (const RunEntry& run : record.runs) {
    for (const BenchRate& rate : bench_rates(run)) text += csv_row(record, run, rate);
  }
  return text;
}

std::string bench_plot(const RunRecord& record) {
  std::vector<AttentionProblem> kinds;
  for (const RunEntry& run : record.runs) add_new(kinds, kind_of(run.problem));
  Figure figure{.name = "rates", .title = "Rate against sequence length"};
  FigureLooks looks;
  for (const AttentionProblem& kind : kinds) {
    for (const char* what : {"forward", "backward", "forward+backward"}) {
      const auto drawing = rate_drawing(record, kind, what, looks);
      if (drawing) figure.panels.push_back({fmt::format("{}, {}", kind_text(kind), what), *drawing});
    }
  }
  return to_svg(figure);
}

void require_plottable(const std::vector<BenchmarkCase>& cases, const std::string& path) {
  const auto has_two_lengths = [&](const BenchmarkCase& c) {
    return std::ranges::any_of(cases, [&](const BenchmarkCase& other) {
      return other.kernel == c.kernel && kind_of(other.problem) == kind_of(c.problem) &&
             other.problem.seqlen_q != c.problem.seqlen_q;
    });
  };
  if (std::ranges::none_of(cases, has_two_lengths)) {
    throw BadInput("--plot", path, "needs a sweep with two or more lengths, as in --sweep seqlen=512..4k");
  }
  require_writable_file("--plot", path);
}

}  // namespace tilescope::cli
