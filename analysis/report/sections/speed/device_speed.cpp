// SPDX-License-Identifier: Apache-2.0
// Our kernels' rates over those of other libraries in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/report/document/add_new.hpp"
#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/device_runs.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

/// Of our rate over a peer's, over the problems that `wanted` keeps and both ran; a dash if there is none.
std::string geometric_mean(const DeviceRuns& group, const std::string& ours, const std::string& peer,
                           const std::function<bool(const AttentionProblem&)>& wanted) {
  double sum = 0;
  int count = 0;
  for (const AttentionProblem& problem : group.problems()) {
    const RunSummary *a = group.find(ours, problem), *b = group.find(peer, problem);
    if (!a || !b || !wanted(problem)) continue;
    sum += std::log(paper_rate(*a) / paper_rate(*b));
    ++count;
  }
  return count > 0 ? fmt::format("{:.2f}", std::exp(sum / count)) : "-";
}

/// Rows: head dimension and mask, then all problems. Columns: peers.
Table ratio_table(const DeviceRuns& group) {
  const std::vector<std::string> peers = group.labels(false);
  Table table{fmt::format("{}: our rate over the peer's, geometric mean over the lengths.",
                          group.direction == Direction::forward ? "Forward" : "Backward"),
              {{"kernel"}, {"head_dim"}, {"mask"}},
              {}};
  for (const std::string& peer : peers) table.columns.push_back({peer, true});
  std::vector<std::pair<std::int64_t, bool>> kinds;
  for (const AttentionProblem& problem : group.problems()) {
    add_new(kinds, {problem.head_dim, problem.causal});
  }
  for (const std::string& ours : group.labels(true)) {
    for (const auto& kind : kinds) {
      const auto [head_dim, causal] = kind;
      std::vector<std::string> row = {ours, std::to_string(head_dim), causal ? "causal" : "none"};
      for (const std::string& peer : peers) {
        row.push_back(geometric_mean(group, ours, peer, [&](const AttentionProblem& problem) {
          return std::pair{problem.head_dim, problem.causal} == kind;
        }));
      }
      table.rows.push_back(std::move(row));
    }
    std::vector<std::string> row = {ours, "all", "all"};
    for (const std::string& peer : peers) {
      row.push_back(
          fmt::format("**{}**", geometric_mean(group, ours, peer, [](const auto&) { return true; })));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

constexpr std::int64_t kHeadDimOfFigures = 128;  // the commonest

/// Rates against length for one head dimension and mask.
std::optional<Figure> rate_figure(const DeviceRuns& group, std::int64_t head_dim, bool causal) {
  LineChart chart;
  KernelLooks looks;
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
    line.look = looks.take(algorithm);
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

}  // namespace tilescope
