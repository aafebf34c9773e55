// SPDX-License-Identifier: Apache-2.0
// Two records in one page: what became less and what became more, against a baseline.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// A number that changed, of a run that both sides have.
struct Change {
  const RunEntry* run = nullptr;
  MetricChange metric;

  double relative() const { return metric.now / metric.base - 1; }
  /// Good and bad beyond what the metric jitters by: its default budget.
  Outcome outcome() const {
    const double allowed =
        metric.budget.relative ? metric.budget.amount * std::abs(metric.base) : metric.budget.amount;
    if (std::abs(metric.now - metric.base) <= allowed) return Outcome::informational;
    return metric.now < metric.base ? Outcome::good : Outcome::bad;
  }
  std::string name() const {
    const std::string where = where_in_words(*run, metric.where);
    return fmt::format("{}, {} {}", short_name(run->kernel), where, metric.metric->key);
  }
};

struct Comparison {
  RunRecord base, now;  // all runs of a side
  RecordDiff diff;
  std::vector<Change> changes;  // what grew most first, then what shrank, the most last
};

RunRecord all_runs(const std::vector<RunRecord>& records) {
  RunRecord all;
  for (const RunRecord& record : records)
    all.runs.insert(all.runs.end(), record.runs.begin(), record.runs.end());
  return all;
}

/// The diff points into the sides, which therefore stay where they are.
void compare(Comparison& comparison) {
  comparison.diff = diff_records(comparison.base, comparison.now, {});
  for (const RunChange& run : comparison.diff.common) {
    for (const MetricChange& metric : run.changes) {
      // The replay's bytes at SM<->L2 are the formula's.
      const bool twice = metric.metric->name().starts_with("simulated.sm_l2");
      if (metric.moved() && metric.base > 0 && !twice) comparison.changes.push_back({run.now, metric});
    }
  }
  std::ranges::stable_sort(comparison.changes, std::greater(), &Change::relative);
}

std::string value_text(const RecordMetric& metric, double value) {
  return metric.unit == "B"      ? format_bytes(value)
         : metric.unit == "s"    ? format_seconds(value)
         : metric.unit == "FLOP" ? format_flops(value)
                                 : format_number(value);
}

std::string percent_text(double share) {
  return fmt::format("{:+.{}f} %", 100 * share, std::abs(share) < 0.01 ? 3 : 1);
}

Table change_table(const Comparison& comparison) {
  Table table{
      "Every number that changed, of the runs in both records. Green: less. Red: more. "
      "Without colour: no more than counters and clocks differ by from run to run.",
      {{"where"}, {"metric"}, {"baseline", true}, {"now", true}, {"change", true}},
      {},
      "problem and kernel"};
  const RunEntry* run = nullptr;
  std::vector<Change> by_run = comparison.changes;
  std::ranges::stable_sort(by_run, {}, [](const Change& change) { return change.run; });
  for (const Change& change : by_run) {
    if (change.run != run) {
      run = change.run;
      table.rows.push_back(
          {without_problem(*run) ? run->kernel : fmt::format("{}, {}", run->kernel, describe(run->problem))});
      table.outcomes.push_back(Outcome::informational);
    }
    const MetricChange& metric = change.metric;
    table.rows.push_back({where_in_words(*run, metric.where), metric.metric->name(),
                          value_text(*metric.metric, metric.base), value_text(*metric.metric, metric.now),
                          percent_text(change.relative())});
    table.outcomes.push_back(change.outcome());
  }
  return table;
}

/// What changed most, both ways: a line each, from no change to its change.
Figure change_figure(const Comparison& comparison) {
  constexpr std::size_t kMost = 12;  // from both ends
  std::vector<Change> shown;
  std::ranges::copy_if(comparison.changes, std::back_inserter(shown),
                       [](const Change& change) { return change.outcome() != Outcome::informational; });
  if (shown.size() > kMost) shown.erase(shown.begin() + kMost / 2, shown.end() - kMost / 2);
  if (shown.empty()) return {};
  constexpr double kRow = 34, kNote = 0.3, kLine = 0.75;  // of the height of a row
  LineChart chart;
  auto y = static_cast<double>(shown.size());
  chart.plot_height = kRow * y;
  chart.y = {"", {}, 0, y, false};
  double most = 0;
  for (const Change& change : shown) most = std::max(most, 100 * std::abs(change.relative()));
  chart.series.push_back({"no change", kFloorLook, {{0, 0}, {0, y}}});
  for (const Change& change : shown) {
    const bool good = change.outcome() == Outcome::good;
    chart.series.push_back({change.name(),
                            {.color = good ? Color::good : Color::bad,
                             .marker = good ? Marker::triangle_down : Marker::triangle},
                            {{100 * change.relative(), y - kLine}, {0, y - kLine}},
                            2});
    chart.notes.push_back({{-1.05 * most, y - kNote}, change.name() + " " + percent_text(change.relative())});
    --y;
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  chart.x = {"Change against the baseline (%)", {}, -1.1 * most, 1.1 * most, false, [](double value) {
               return fmt::format("{:+.1f} %", value);
             }};
  // As far apart as both sides together ask for, so that none is left out, zero least of all.
  for (const auto& [label, value] : linear_ticks(2 * most, number)) {
    if (value > 1.1 * most) continue;
    if (value > 0) chart.x.ticks.insert(chart.x.ticks.begin(), {"-" + label, -value});
    chart.x.ticks.emplace_back(label, value);
  }
  return {"changes-against-baseline",
          "What changed most against the baseline.",
          "Green: less than before. Red: more.",
          {},
          {{"", draw(chart, false)}}};
}

/// "gpu:flash2, forward measured.dram_read_bytes -12.0 %"
std::string change_text(const Change& change) {
  return fmt::format("`{}` {}", change.name(), percent_text(change.relative()));
}

}  // namespace

std::optional<Finding> changes_verdict(const std::vector<RunRecord>& base,
                                       const std::vector<RunRecord>& now) {
  if (base.empty()) return std::nullopt;
  Comparison comparison{all_runs(base), all_runs(now), {}, {}};
  compare(comparison);
  std::int64_t less = 0, more = 0;
  for (const Change& change : comparison.changes) {
    less += change.outcome() == Outcome::good;
    more += change.outcome() == Outcome::bad;
  }
  Finding finding{"What changed against the baseline?", {}, "", Outcome::informational, "changes"};
  finding.lines = {{{{fmt::format("{}", less), "less", less > 0 ? Outcome::good : Outcome::informational},
                     {fmt::format("{}", more), "more", more > 0 ? Outcome::bad : Outcome::informational}}}};
  finding.outcome = more == 0  ? (less > 0 ? Outcome::good : Outcome::informational)
                    : less > 0 ? Outcome::mixed
                               : Outcome::bad;
  const RecordDiff& diff = comparison.diff;
  finding.sentence = fmt::format("Runs in both: {}; only in the baseline: {}; only here: {}.",
                                 diff.common.size(), diff.only_base.size(), diff.only_now.size());
  if (less > 0)
    finding.sentence += fmt::format(" The largest decrease: {}.", change_text(comparison.changes.back()));
  if (more > 0)
    finding.sentence += fmt::format(" The largest increase: {}.", change_text(comparison.changes.front()));
  return finding;
}

std::optional<Section> changes_section(const std::vector<RunRecord>& base,
                                       const std::vector<RunRecord>& now) {
  if (base.empty()) return std::nullopt;
  Comparison comparison{all_runs(base), all_runs(now), {}, {}};
  compare(comparison);
  Section section{"changes", "What changed against the baseline", {}, true};
  if (Figure figure = change_figure(comparison); !figure.panels.empty())
    section.blocks.emplace_back(std::move(figure));
  if (Table table = change_table(comparison); !table.rows.empty()) {
    section.blocks.emplace_back(std::move(table));
  } else {
    section.blocks.emplace_back(Paragraph{"No number of the runs that both have has changed."});
  }
  std::vector<std::string> apart;
  for (const auto& [side, runs] : {std::pair("only in the baseline", comparison.diff.only_base),
                                   {"only here", comparison.diff.only_now}}) {
    for (const RunEntry* run : runs)
      apart.push_back(fmt::format("{}: {}, {}", side, run->kernel, describe(run->problem)));
  }
  if (!apart.empty())
    section.blocks.emplace_back(Bullets{apart, fmt::format("{} runs that only one side has", apart.size())});
  return section;
}

}  // namespace tilescope
