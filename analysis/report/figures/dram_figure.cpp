// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/dram_figure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

/// Whether a sweep of one pass, measured and simulated, goes beyond what an L2 holds.
bool leaves_l2(const std::vector<const RunSummary*>& sweep) {
  constexpr std::int64_t kLong = 65536;  // K and V of one head are as large as an L2
  const bool measured = std::all_of(sweep.begin(), sweep.end(), [](const RunSummary* run) {
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
  LineSeries closed{"SM<->L2 read, closed form", {.color = Color::blue}, {}};
  LineSeries sm_l2{
      "SM<->L2 read, measured", {.color = Color::blue, .marker = Marker::square, .line = false}, {}};
  LineSeries model{"DRAM read, simulated", {.color = Color::vermilion, .dash = Dash::dashed}, {}};
  LineSeries dram{
      "DRAM read, measured", {.color = Color::vermilion, .marker = Marker::circle, .line = false}, {}};
  LineSeries floor{"compulsory", kFloorLook, {}};
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
      "lie on the closed form. DRAM reads stay at the floor while the K and V in use fit the L2, and then "
      "grow by one sweep of them for each wave of CTAs.",
      format_length(runs.back()->problem().batch * runs.back()->problem().heads *
                    runs.back()->problem().seqlen_q));
  figure.panels = {{sweep_text(runs), draw(chart, false)}};
  figure.legend = draw_legend(chart.series);
  return figure;
}

void add_dram_sweep_rows(Table& table, const std::vector<const RunSummary*>& runs) {
  table.rows.push_back({sweep_text(runs)});
  for (const RunSummary* run : runs) {
    const double read = static_cast<double>(run->measured_dram->read_bytes);
    const double simulated = static_cast<double>(run->simulated_dram->read_bytes);
    const double sm_l2 = static_cast<double>(run->measured_sm_l2->read_bytes);
    table.rows.push_back(
        {format_length(run->problem().seqlen_q), format_bytes(sm_l2),
         fmt::format("{:+.4f} %", 100 * (sm_l2 / static_cast<double>(run->closed_form->read_bytes) - 1)),
         format_bytes(read), format_ratio(read / static_cast<double>(run->compulsory.read_bytes)),
         format_bytes(simulated), fmt::format("{:+.1f} %", 100 * (simulated / read - 1))});
  }
}

}  // namespace

void add_dram_sweeps(Section& section, const std::vector<RunSummary>& runs) {
  Table table{"The same in numbers.",
              {{"N", true},
               {"SM<->L2 read", true},
               {"from the closed form", true},
               {"DRAM read", true},
               {"x compulsory", true},
               {"simulated", true},
               {"difference", true}},
              {},
              "kernel and problem"};
  for (const auto& sweep : token_sweeps(runs)) {
    if (!leaves_l2(sweep)) continue;
    add_to_figure(section, dram_figure(sweep));
    add_dram_sweep_rows(table, sweep);
  }
  if (!table.rows.empty()) section.blocks.push_back(std::move(table));
}

}  // namespace tilescope
