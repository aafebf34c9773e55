// SPDX-License-Identifier: Apache-2.0
// Rates of what `bench` timed on a device, our kernels and other libraries', by record and direction.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/rate_ratios.hpp"
#include "analysis/report/sections/speed/roofline_figures.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Timed by `bench`, that is: `profile` counts bytes too, with each launch by itself.
bool timed_on_device(const RunSummary& run) {
  return run.median_seconds && run.run->runs_on != "cpu" && !run.closed_form;
}

/// Whether it is a kernel of TileScope's.
bool is_ours(const RunSummary& run) { return run.run->runs_on == "gpu"; }

/// By the papers' count. [FLOP/s]
double paper_rate(const RunSummary& run) {
  return static_cast<double>(paper_flops(run.problem(), run.direction)) / *run.median_seconds;
}

/// The runs of one direction in one record.
struct DeviceRuns {
  const RunRecord* record = nullptr;
  Direction direction = Direction::forward;
  std::vector<const RunSummary*> runs;

  /// Labels of our kernels, or of the others, in the order of the record.
  std::vector<std::string> labels(bool ours) const {
    std::vector<std::string> found;
    for (const RunSummary* run : runs) {
      if (is_ours(*run) == ours) add_new(found, run->label);
    }
    return found;
  }
  /// Our kernels first.
  std::vector<std::string> labels() const {
    std::vector<std::string> all = labels(true);
    std::ranges::copy(labels(false), std::back_inserter(all));
    return all;
  }
  std::vector<AttentionProblem> problems() const {
    std::vector<AttentionProblem> found;
    for (const RunSummary* run : runs) add_new(found, run->problem());
    return found;
  }
  /// Null if there is none.
  const RunSummary* find(const std::string& label, const AttentionProblem& problem) const {
    const auto found = std::ranges::find_if(
        runs, [&](const RunSummary* run) { return run->label == label && run->problem() == problem; });
    return found == runs.end() ? nullptr : *found;
  }
  const char* heading() const { return direction == Direction::forward ? "Forward" : "Backward"; }
};

/// Record after record, forward before backward.
std::vector<DeviceRuns> device_runs(const std::vector<RunSummary>& runs) {
  std::vector<DeviceRuns> groups;
  std::vector<const RunRecord*> records;
  for (const RunSummary& run : runs) {
    if (timed_on_device(run)) add_new(records, run.record);
  }
  for (const RunRecord* record : records) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      DeviceRuns group{record, direction, {}};
      for (const RunSummary& run : runs) {
        if (timed_on_device(run) && run.record == record && run.direction == direction)
          group.runs.push_back(&run);
      }
      if (!group.runs.empty()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

/// Forward and backward, each of the first record that has our kernels and others' in that direction: what is
/// compared was timed in one run, at the same clocks.
std::vector<DeviceRuns> runs_beside_peers(const std::vector<RunSummary>& runs) {
  std::vector<DeviceRuns> found;
  const std::vector<DeviceRuns> all = device_runs(runs);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const auto group = std::ranges::find_if(all, [&](const DeviceRuns& each) {
      return each.direction == direction && !each.labels(true).empty() && !each.labels(false).empty();
    });
    if (group != all.end()) found.push_back(*group);
  }
  return found;
}

/// What of a problem makes a stratum.
using Stratum = std::pair<std::int64_t, bool>;  // head_dim, causal
Stratum stratum_of(const AttentionProblem& problem) { return {problem.head_dim, problem.causal}; }

/// Problems of a stratum that both ran.
std::vector<TimedPair> pairs_of(const DeviceRuns& group, const std::string& ours, const std::string& peer,
                                const Stratum& stratum) {
  std::vector<TimedPair> pairs;
  for (const AttentionProblem& problem : group.problems()) {
    const RunSummary *a = group.find(ours, problem), *b = group.find(peer, problem);
    if (a && b && stratum_of(problem) == stratum) pairs.push_back({a, b});
  }
  return pairs;
}

/// Rows: head dimension and mask. Columns: peers.
Table ratio_table(const DeviceRuns& group) {
  const std::vector<std::string> peers = group.labels(false);
  Table table{
      fmt::format("{}: our rate over the peer's, geometric mean over the lengths, and between which two "
                  "numbers 95 of 100 resamples of the launches lie.",
                  group.heading()),
      {{"kernel"}, {"head_dim"}, {"mask"}},
      {}};
  for (const std::string& peer : peers) table.columns.push_back({peer, true});
  std::vector<Stratum> strata;
  for (const AttentionProblem& problem : group.problems()) add_new(strata, stratum_of(problem));
  for (const std::string& ours : group.labels(true)) {
    for (const Stratum& stratum : strata) {
      std::vector<std::string> row = {ours, std::to_string(stratum.first),
                                      stratum.second ? "causal" : "none"};
      for (const std::string& peer : peers) {
        const std::vector<TimedPair> pairs = pairs_of(group, ours, peer, stratum);
        row.push_back(pairs.empty() ? "-" : rate_ratio(pairs).text());
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

constexpr std::int64_t kHeadDimOfFigures = 128;  // the commonest

/// Rates against length for one head dimension and mask.
std::optional<Figure> rate_figure(const DeviceRuns& group, std::int64_t head_dim, bool causal) {
  LineChart chart;
  FigureLooks looks;
  std::vector<std::int64_t> lengths;
  double highest = 0;
  for (const std::string& label : group.labels()) {
    LineSeries line{label, {}, {}};
    std::optional<Algorithm> algorithm;
    for (const AttentionProblem& problem : group.problems()) {
      const RunSummary* run = group.find(label, problem);
      if (!run || problem.head_dim != head_dim || problem.causal != causal) continue;
      if (is_ours(*run)) algorithm = run->algorithm;
      line.points.push_back({static_cast<double>(problem.seqlen_q), 1e-12 * paper_rate(*run)});
      lengths.push_back(problem.seqlen_q);
      highest = std::max(highest, line.points.back().y);
    }
    if (line.points.size() < 3) continue;
    line.look = looks.take(label, algorithm);
    line.label = short_name(label);
    chart.series.push_back(std::move(line));
  }
  if (chart.series.size() < 2) return std::nullopt;
  highest *= 1.05;
  chart.x = doubling_axis("sequence length N", lengths, format_length);
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  chart.y = {"TFLOP/s", linear_ticks(highest, number),
             0,         highest,
             false,     [number](double value) { return number(value) + " TFLOP/s"; }};
  const std::string_view direction = to_string(group.direction);
  return Figure{fmt::format("rate-against-seqlen-{}", direction),
                fmt::format("Rate against sequence length, {} pass.", direction),
                fmt::format("head_dim {}{}, {}; as many tokens at every length.", head_dim,
                            causal ? ", causal" : "", group.record->machine.name.value_or("unknown device")),
                {command_text(group.record->argv)},
                {{"", draw(chart)}}};
}

}  // namespace

std::optional<Section> device_speed_section(const std::vector<RunSummary>& runs) {
  const std::vector<DeviceRuns> groups = runs_beside_peers(runs);
  if (groups.empty()) return std::nullopt;
  Section section{"device-speed", "Speed on a device, beside other libraries", {}};
  section.title = with_machines(section.title, {groups.front().runs.front()});
  const MachineInfo& machine = groups.front().record->machine;
  section.blocks.push_back(
      Paragraph{fmt::format("On {}, {} problems each way, beside the kernels of {}, problem by problem in "
                            "turn, each direction in one run. Medians of samples that begin with a cold L2. "
                            "Rates by the papers' count: 4 N² D FLOP a head forward, half of it with a "
                            "causal mask, 2.5 times as much backward. `triton:plain` is our own "
                            "FlashAttention-2 in Triton with one tile shape for every head dimension, "
                            "`triton:tuned` the same with the fastest of a few; both compile to the "
                            "warpgroup instructions of sm_90, which cuDNN's kernels and gpu:flash3 use too, "
                            "while gpu:flash2-mma and PyTorch's FlashAttention-2 use those of sm_80.",
                            machine.name.value_or("an unknown device"), groups.front().problems().size(),
                            machine.libraries.value_or("other libraries"))});
  for (const DeviceRuns& group : groups) {
    section.blocks.push_back(ratio_table(group));
    std::optional<Figure> figure = rate_figure(group, kHeadDimOfFigures, false);
    if (figure) section.blocks.push_back(std::move(*figure));
  }
  return section;
}

namespace {

/// Rows: problems. Columns: kernels, ours first. With a single kernel also its share of the datasheet's peak.
Table rate_table(const DeviceRuns& group) {
  const std::vector<std::string> labels = group.labels();
  Table table{
      fmt::format("{}, TFLOP/s, {}.", group.heading(), machine_text(*group.runs.front())), {{"problem"}}, {}};
  for (const std::string& label : labels) table.columns.push_back({label, true});
  const auto& device = group.record->machine.name;
  const std::optional<Machine> machine = device ? machine_of_device(*device) : std::nullopt;
  const bool with_peak = labels.size() == 1 && machine;
  if (with_peak) table.columns.push_back({"of the peak", true});
  for (const AttentionProblem& problem : group.problems()) {
    std::vector<std::string> row = {""};
    for (const std::string& label : labels) {
      const RunSummary* run = group.find(label, problem);
      if (run) row.front() = problem_text(*run);
      row.push_back(run ? fmt::format("{:.1f}", 1e-12 * paper_rate(*run)) : "-");
      const std::optional<double> peak = with_peak ? machine->peak_flops(problem.dtype) : std::nullopt;
      if (peak) row.push_back(fmt::format("{:.1f} %", 100 * paper_rate(*run) / *peak));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> device_rate_section(const std::vector<RunSummary>& runs) {
  Section section{"device-rates", "Rates on a device, problem by problem", {}};
  const RunRecord* record = nullptr;
  for (const DeviceRuns& group : device_runs(runs)) {
    if (group.record != record) {
      record = group.record;
      if (section.blocks.empty()) section.title = with_machines(section.title, {group.runs.front()});
      section.blocks.push_back(CommandLines{{command_text(record->argv)}});
      section.blocks.push_back(Paragraph{fmt::format(
          "On {}, L2 cold, by the papers' count of FLOP. A peak is the datasheet's for the element type.",
          record->machine.name.value_or("an unknown device"))});
    }
    section.blocks.push_back(rate_table(group));
  }
  if (!record) return std::nullopt;
  return section;
}

namespace {

/// Our fastest kernel beside the fastest peer on each problem of a head dimension.
std::vector<TimedPair> fastest_pairs(const DeviceRuns& group, std::int64_t head_dim) {
  std::vector<TimedPair> pairs;
  for (const AttentionProblem& problem : group.problems()) {
    TimedPair fastest;
    for (const RunSummary* run : group.runs) {
      const RunSummary*& best = is_ours(*run) ? fastest.ours : fastest.peer;
      if (run->problem() == problem && (!best || *run->median_seconds < *best->median_seconds)) best = run;
    }
    if (problem.head_dim == head_dim && fastest.ours && fastest.peer) pairs.push_back(fastest);
  }
  return pairs;
}

constexpr double kNearlyAsFast = 0.9;
Outcome outcome_of(double ratio) { return ratio >= kNearlyAsFast ? Outcome::good : Outcome::mixed; }

}  // namespace

std::optional<Finding> speed_verdict(const std::vector<RunSummary>& runs) {
  double slowest = HUGE_VAL, surely = HUGE_VAL, worst = HUGE_VAL, widest = 0;
  std::size_t problems = 0;
  std::vector<FindingLine> lines;
  std::vector<std::string> minima;
  std::string device;
  for (const DeviceRuns& group : runs_beside_peers(runs)) {
    FindingLine line{{}, std::string(to_string(group.direction))};
    std::vector<std::int64_t> head_dims;
    for (const AttentionProblem& problem : group.problems()) add_new(head_dims, problem.head_dim);
    std::vector<std::string> least;
    for (const std::int64_t head_dim : head_dims) {
      const std::vector<TimedPair> pairs = fastest_pairs(group, head_dim);
      if (pairs.empty()) continue;
      const RateRatio ratio = rate_ratio(pairs);
      line.amounts.push_back(
          {format_ratio(ratio.by_medians), fmt::format("d = {}", head_dim), outcome_of(ratio.by_medians)});
      least.push_back(format_ratio(ratio.by_minima));
      slowest = std::min(slowest, ratio.by_medians);
      surely = std::min({surely, ratio.low, ratio.by_minima});
      widest = std::max(widest, (ratio.high - ratio.low) / 2 / ratio.by_medians);
      problems += pairs.size();
      for (const TimedPair& pair : pairs)
        worst = std::min(worst, *pair.peer->median_seconds / *pair.ours->median_seconds);
    }
    if (line.amounts.empty()) continue;
    lines.push_back(std::move(line));
    minima.push_back(fmt::format("{} {}", to_string(group.direction), fmt::join(least, ", ")));
    device = group.record->machine.name.value_or("unknown device");
  }
  if (lines.empty()) return cpu_speed_verdict(runs);
  constexpr double kLevel = 0.95;  // of a problem: what two runs of one kernel may differ by
  // A stratum is faster where neither resampling nor minima say otherwise.
  const char* verdict = surely >= 1                ? worst >= 1        ? "Faster."
                                                     : worst >= kLevel ? "Faster on the mean, level at worst."
                                                                       : "Faster on the mean, not everywhere."
                        : slowest >= kLevel        ? "Faster or level."
                        : slowest >= kNearlyAsFast ? "Nearly as fast."
                                                   : "Slower.";
  return Finding{
      "How fast are they?", lines,
      fmt::format(
          "**{}** The rate of our fastest kernel over that of the fastest library by head dimension, "
          "geometric means over {} problems in all ({}), known to {:.1f} % by resampling; by minima {}. On "
          "the worst problem it is {}.",
          verdict, problems, device, std::max(0.1, 100 * widest), fmt::join(minima, "; "),
          format_ratio(worst)),
      outcome_of(slowest), "device-speed"};
}

}  // namespace tilescope
