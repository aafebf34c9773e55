// SPDX-License-Identifier: Apache-2.0
// DRAM traffic against the size of the L2: one replay tells all sizes.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/model/counts/direction_total.hpp"
#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

bool has_curve(const RunSummary& run) {
  return std::all_of(run.passes.begin(), run.passes.end(), [](const PassRecord* pass) {
    return pass->simulated && !pass->simulated->l2_curve.empty();
  });
}

/// DRAM bytes, read and written, of all passes.
std::vector<ChartPoint> curve_of(const RunSummary& run) {
  std::vector<ChartPoint> points;
  for (const auto& [l2_bytes, dram] : total_l2_curve(*run.run, run.direction)) {
    if (l2_bytes == 0) continue;  // has no place on a logarithmic axis
    points.push_back({static_cast<double>(l2_bytes), static_cast<double>(dram.total())});
  }
  return points;
}

Figure l2_figure(const std::vector<const RunSummary*>& runs) {
  Figure figure;
  LineChart chart;
  KernelLooks palette;
  std::vector<std::int64_t> sizes;
  for (const RunSummary* run : runs) {
    LineSeries line{title_in(runs, *run), palette.take(run->algorithm), curve_of(*run)};
    line.marker_every = std::max<int>(1, static_cast<int>(line.points.size()) / 7);
    for (const ChartPoint& point : line.points) sizes.push_back(static_cast<std::int64_t>(point.x));
    chart.series.push_back(std::move(line));
    add_command(figure, *run);
  }
  const RunSummary& first = *runs.front();
  const std::optional<Machine> machine = machine_of(first);
  const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
  // Beyond many times the machine's L2 a curve is of no interest.
  const std::int64_t last = machine ? std::min(*largest, 16 * machine->l2_bytes.value) : *largest;
  std::vector<std::int64_t> marks;
  for (std::int64_t size = 1; size <= last; size *= 2) {
    if (size >= *smallest) marks.push_back(size);
  }
  chart.x = doubling_axis("L2 size (bytes)", marks, format_capacity);
  for (LineSeries& line : chart.series) {
    std::erase_if(line.points, [&chart](const ChartPoint& point) { return point.x > chart.x.high; });
    line.points.push_back({chart.x.high, line.points.back().y});  // a larger L2 changes nothing more
  }
  const double floor = static_cast<double>(first.compulsory.total());
  chart.series.push_back({"compulsory", kFloorLook, {{chart.x.low, floor}, {chart.x.high, floor}}});
  chart.y = byte_axis("DRAM bytes read and written", chart.series);
  const ChartAxis y = chart.y;
  const auto mark_capacity = [&chart, &y](const std::string& title, std::int64_t bytes, Dash dash) {
    const double x = static_cast<double>(bytes);
    if (x < chart.x.low || x > chart.x.high) return;
    chart.series.push_back({fmt::format("{}, {}", title, format_capacity(bytes)),
                            {.color = Color::grey, .dash = dash},
                            {{x, y.low}, {x, y.high}}});
  };
  if (machine) {
    mark_capacity(machine->name + " L2", machine->l2_bytes.value, Dash::solid);
    if (machine->l2_effective_bytes.value != machine->l2_bytes.value) {
      mark_capacity("of it usable", machine->l2_effective_bytes.value, Dash::dashed);
    }
  }
  figure.name = fmt::format("dram-against-l2-{}", to_string(first.direction));
  figure.title = fmt::format("DRAM bytes against L2 size, {} pass.", to_string(first.direction));
  figure.caption =
      "Each line is one replay, through an LRU: the stack distance of an access is the smallest L2 that "
      "saves it. A cliff stands where the tensors that concurrent CTAs share begin to fit.";
  figure.panels = {{fmt::format("{}, {} model", problem_text(first), first.machine_model), draw(chart)}};
  figure.panels.front().steps = true;
  return figure;
}

}  // namespace

std::optional<Section> l2_section(const std::vector<RunSummary>& runs) {
  Section section{"l2", "What the L2 saves", {}};
  std::vector<const RunSummary*> shown;
  for (const auto& members : group_by_problem(headline_runs(runs))) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      std::vector<const RunSummary*> side;
      std::copy_if(
          members.begin(), members.end(), std::back_inserter(side),
          [direction](const RunSummary* run) { return run->direction == direction && has_curve(*run); });
      if (side.empty()) continue;
      add_to_figure(section, l2_figure(side));
      shown.insert(shown.end(), side.begin(), side.end());
    }
  }
  if (section.blocks.empty()) return std::nullopt;
  section.title = with_machines(section.title, shown);
  return section;
}

}  // namespace tilescope
