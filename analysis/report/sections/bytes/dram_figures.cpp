// SPDX-License-Identifier: Apache-2.0
// DRAM bytes against the size of the L2, simulated, and against sequence length, measured and simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/model/counts/direction_total.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

/// DRAM bytes, read and written, of all passes, at the sizes that have a place on logarithmic axes; empty
/// where a pass was not replayed.
std::vector<ChartPoint> curve_of(const RunSummary& run) {
  const bool replayed = std::ranges::all_of(run.passes, [](const PassRecord* pass) {
    return pass->simulated && !pass->simulated->l2_curve.empty();
  });
  if (!replayed) return {};
  std::vector<ChartPoint> points;
  for (const auto& [l2_bytes, dram] : total_l2_curve(*run.run, run.direction)) {
    const ChartPoint point{static_cast<double>(l2_bytes), static_cast<double>(dram.total())};
    if (point.x > 0 && point.y > 0) points.push_back(point);
  }
  return points;
}

/// An axis with the powers of two among the sizes of `lines`, up to many times the machine's L2: beyond, a
/// curve is of no interest.
ChartAxis l2_axis(const std::vector<LineSeries>& lines, const std::optional<Machine>& machine) {
  double smallest = HUGE_VAL, largest = 0;
  for (const LineSeries& line : lines) {
    smallest = std::min(smallest, line.points.front().x);
    largest = std::max(largest, line.points.back().x);
  }
  const double last =
      machine ? std::min(largest, 16 * static_cast<double>(machine->l2_bytes.value)) : largest;
  std::vector<std::int64_t> marks;
  for (int power = 0; power < 63; ++power) {
    const std::int64_t size = std::int64_t{1} << power;
    if (static_cast<double>(size) >= smallest && static_cast<double>(size) <= last) marks.push_back(size);
  }
  if (marks.empty()) marks = {std::llround(smallest)};
  return doubling_axis("L2 size (bytes)", marks, format_capacity);
}

Figure l2_figure(const std::vector<const RunSummary*>& runs) {
  Figure figure;
  LineChart chart;
  FigureLooks palette;
  for (const RunSummary* run : runs) {
    const std::string title = title_in(runs, *run);
    LineSeries line{title, palette.take(title, run->algorithm), curve_of(*run)};
    line.label = short_name(title);
    line.marker_every = std::max<int>(1, static_cast<int>(line.points.size()) / 7);
    chart.series.push_back(std::move(line));
    add_command(figure, *run);
  }
  const RunSummary& first = *runs.front();
  const std::optional<Machine> machine = machine_of(first);
  chart.x = l2_axis(chart.series, machine);
  for (LineSeries& line : chart.series) {
    const double at_first = line.points.front().y;
    std::erase_if(line.points, [&chart](const ChartPoint& point) { return point.x > chart.x.high; });
    const double at_last = line.points.empty() ? at_first : line.points.back().y;
    line.points.push_back({chart.x.high, at_last});  // a larger L2 changes nothing more
  }
  const double floor = static_cast<double>(first.compulsory.total());
  chart.series.push_back(
      {"must move", kFloorLook, {{chart.x.low, floor}, {chart.x.high, floor}}, 1, "must move"});
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
      std::copy_if(members.begin(), members.end(), std::back_inserter(side),
                   [direction](const RunSummary* run) {
                     return run->direction == direction && !curve_of(*run).empty();
                   });
      if (side.empty()) continue;
      add_to_figure(section, l2_figure(side));
      shown.insert(shown.end(), side.begin(), side.end());
    }
  }
  if (section.blocks.empty()) return std::nullopt;
  section.title = with_machines(section.title, shown);
  return section;
}

namespace {

/// Whether a sweep of one pass, measured and simulated, goes beyond what an L2 holds.
bool leaves_l2(const std::vector<const RunSummary*>& sweep) {
  constexpr std::int64_t kLong = 65536;  // K and V of one head are as large as an L2
  const bool measured = std::ranges::all_of(sweep, [](const RunSummary* run) {
    return run->passes.size() == 1 && run->measured_dram && run->simulated_dram && run->closed_form;
  });
  return measured && sweep.back()->problem().seqlen_q >= kLong;
}

std::string device_of(const RunSummary& run) { return run.record->machine.name.value_or("a device"); }

/// "gpu:flash2-mma, forward, d = 64, fp16"
std::string sweep_text(const std::vector<const RunSummary*>& runs) {
  const RunSummary& last = *runs.back();
  return fmt::format("{}, {}, d = {}, {}", last.label, to_string(last.direction), last.problem().head_dim,
                     to_string(last.problem().dtype));
}

/// Reads of one kernel over the lengths of a sweep, as a panel of the figure of all of them.
Figure dram_figure(const std::vector<const RunSummary*>& runs) {
  Figure figure;
  LineChart chart;
  std::vector<std::int64_t> marks;
  const Color color = look_of(runs.front()->label, runs.front()->algorithm).color;
  LineSeries closed{"SM<->L2 read, closed form", {.color = color}, {}, 1, "SM<->L2"};
  LineSeries sm_l2{"SM<->L2 read, measured", {.color = color, .marker = Marker::plus, .line = false}, {}};
  LineSeries model{"DRAM read, simulated", {.color = color, .dash = Dash::dashed}, {}, 1, "DRAM"};
  LineSeries dram{"DRAM read, measured", {.color = color, .marker = Marker::cross, .line = false}, {}};
  LineSeries floor{"must be read", kFloorLook, {}, 1, "must be read"};
  for (const RunSummary* run : runs) {
    marks.push_back(run->problem().seqlen_q);
    const auto add = [&](LineSeries& series, std::int64_t bytes) {
      series.points.push_back({static_cast<double>(marks.back()), static_cast<double>(bytes)});
    };
    add(closed, run->closed_form->read_bytes);
    add(sm_l2, run->measured_sm_l2->read_bytes);
    add(model, run->simulated_dram->read_bytes);
    add(dram, run->measured_dram->read_bytes);
    add(floor, run->compulsory.read_bytes);
    add_command(figure, *run);
  }
  chart.series = {closed, sm_l2, model, dram, floor};
  chart.x = doubling_axis("Sequence length N (tokens), tokens fixed", marks, format_length);
  chart.y = byte_axis("Bytes read", chart.series);
  figure.name = "dram-measured";
  figure.title = fmt::format("Bytes read against sequence length, {}.", device_of(*runs.back()));
  figure.caption = fmt::format(
      "{} tokens and heads in all, so that what must be read stays the same. SM<->L2 bytes grow with N and "
      "lie on the closed form. DRAM reads stay at what must be read while the K and V in use fit the L2, and "
      "then "
      "grow by one sweep of them for each wave of CTAs.",
      format_length(runs.back()->problem().batch * runs.back()->problem().heads *
                    runs.back()->problem().seqlen_q));
  figure.panels = {{sweep_text(runs), draw(chart, false)}};
  figure.legend =
      draw_legend({{"closed form", {.color = Color::grey}, {}},
                   {"simulated", {.color = Color::grey, .dash = Dash::dashed}, {}},
                   {"SM<->L2, measured", {.color = Color::grey, .marker = Marker::plus, .line = false}, {}},
                   {"DRAM, measured", {.color = Color::grey, .marker = Marker::cross, .line = false}, {}}});
  return figure;
}

}  // namespace

void add_dram_sweeps(Section& section, const std::vector<RunSummary>& runs) {
  for (const auto& sweep : token_sweeps(runs)) {
    if (!leaves_l2(sweep)) continue;
    add_to_figure(section, dram_figure(sweep));
  }
}

}  // namespace tilescope
