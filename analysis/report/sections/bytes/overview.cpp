// SPDX-License-Identifier: Apache-2.0
// One figure of what a problem's kernels must move, what the models say that they move, and what counters
// saw, at both boundaries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>

#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

using Runs = std::vector<const RunSummary*>;

/// Forward, in one piece of memory, known to formula, simulation and counters.
bool known_to_all(const RunSummary& run) {
  return run.direction == Direction::forward && run.run->pages != PagePlacement::random && run.closed_form &&
         run.measured_sm_l2 && run.simulated_dram && run.measured_dram;
}

/// One run a kernel, that with the fewest choices beside its own, by algorithm and name; what goes by a name
/// of its own is younger than flash1.
Runs rungs_of(Runs runs) {
  const auto kernel = [](const RunSummary* run) {
    return std::tuple(run->algorithm.value_or(Algorithm::flash2), run->run->kernel);
  };
  std::ranges::stable_sort(runs, [&kernel](const RunSummary* a, const RunSummary* b) {
    return std::tuple(kernel(a), a->label.size()) < std::tuple(kernel(b), b->label.size());
  });
  const auto same = [&kernel](const RunSummary* a, const RunSummary* b) { return kernel(a) == kernel(b); };
  runs.erase(std::unique(runs.begin(), runs.end(), same), runs.end());
  return runs;
}

/// The problem with most algorithms, then most kernels, then the longest.
Runs representative_rungs(const std::vector<RunSummary>& runs) {
  Runs known, best;
  for (const RunSummary& run : runs) {
    if (known_to_all(run)) known.push_back(&run);
  }
  const auto rank = [](const Runs& rungs) {
    std::set<Algorithm> algorithms;
    std::int64_t seqlen = 0;
    for (const RunSummary* run : rungs) {
      if (run->algorithm) algorithms.insert(*run->algorithm);
      seqlen = run->problem().seqlen_q;
    }
    return std::tuple(algorithms.size(), rungs.size(), seqlen);
  };
  for (const Runs& together : group_by_problem(known)) {
    const Runs rungs = rungs_of(together);
    if (rank(rungs) > rank(best)) best = rungs;
  }
  return best;
}

double bytes_of(const std::optional<ReadWriteBytes>& bytes) { return static_cast<double>(bytes->total()); }

/// The bytes of a kernel as points of a line: a model's with the kernel's marker, a counter's with a cross.
std::vector<LineSeries> rung_series(const RunSummary& run, const Look& look, double y) {
  const auto one = [&](const char* account, const std::optional<ReadWriteBytes>& bytes, Look as) {
    as.line = false;
    return LineSeries{fmt::format("{}, {}", run.label, account), as, {{bytes_of(bytes), y}}};
  };
  Look counted = look;
  counted.marker = Marker::plus;
  Look counted_at_dram = look;
  counted_at_dram.marker = Marker::cross;
  LineSeries saved{run.label, look, {{bytes_of(run.simulated_dram), y}, {bytes_of(run.closed_form), y}}};
  saved.look.marker = Marker::none;
  return {saved, one("SM<->L2, closed form", run.closed_form, look),
          one("DRAM, simulated", run.simulated_dram, at_dram(look)),
          one("SM<->L2, measured", run.measured_sm_l2, counted),
          one("DRAM, measured", run.measured_dram, counted_at_dram)};
}

std::vector<LineSeries> legend_lines() {
  const Look grey{.color = Color::grey, .marker = Marker::circle, .line = false};
  Look counted = grey, counted_at_dram = grey, open = grey;
  open.filled = false;
  counted.marker = Marker::plus;
  counted_at_dram.marker = Marker::cross;
  return {{"must move: inputs and outputs once", kFloorLook, {}},
          {"SM<->L2, closed form", grey, {}},
          {"SM<->L2, measured", counted, {}},
          {"DRAM, simulated", open, {}},
          {"DRAM, measured", counted_at_dram, {}}};
}

/// "SM<->L2 107x, DRAM 1.01x": two figures where an L2 tells them apart.
std::string times_text(const RunSummary& run, double must) {
  constexpr double kAlike = 0.005;
  const double sm_l2 = bytes_of(run.measured_sm_l2), dram = bytes_of(run.measured_dram);
  if (std::abs(dram / sm_l2 - 1) < kAlike)
    return fmt::format("SM<->L2 and DRAM {}", format_ratio(sm_l2 / must));
  return fmt::format("SM<->L2 {}, DRAM {}", format_ratio(sm_l2 / must), format_ratio(dram / must));
}

/// A row a kernel: above, how often it moves what it must; below, its bytes on an axis that all share.
Drawing draw_rungs(const Runs& rungs) {
  constexpr double kRow = 52, kNote = 0.34, kMarks = 0.7;  // of the height of a row
  const auto must = static_cast<double>(rungs.front()->compulsory.total());
  auto top = static_cast<double>(rungs.size());
  LineChart chart;
  chart.y.high = top;
  chart.y.logarithmic = false;
  chart.plot_height = kRow * top;
  chart.series.push_back({"must move", kFloorLook, {{must, 0}, {must, top}}});
  FigureLooks looks;
  for (const RunSummary* run : rungs) {
    for (LineSeries& series : rung_series(*run, looks.take(run->label, run->algorithm), top - kMarks)) {
      chart.series.push_back(std::move(series));
    }
    chart.notes.push_back({{must, top - kNote}, run->label + ": " + times_text(*run, must)});
    top -= 1;
  }
  chart.x = byte_axis("Bytes read and written", chart.series, &ChartPoint::x);
  return draw(chart, false);
}

}  // namespace

std::optional<Section> overview_section(const std::vector<RunSummary>& runs) {
  const Runs rungs = representative_rungs(runs);
  if (rungs.size() < 2) return std::nullopt;
  Figure figure;
  for (const RunSummary* run : rungs) add_command(figure, *run);
  const RunSummary& last = *rungs.back();
  figure.name = "bytes-overview";
  figure.title = "What must move, what the models say, what counters saw.";
  figure.caption = fmt::format(
      "{} on {}: its kernels must move {}. Between the SMs and L2, the formula of a kernel's tiles gives its "
      "bytes. How many of them reach DRAM depends on the L2, and a replay of the tiles through a model of "
      "the L2 predicts it; the line between the two is what the L2 saves. Crosses are counters; the numbers "
      "are measured bytes over the bytes that must move.",
      problem_text(last), machine_text(last), format_bytes(static_cast<double>(last.compulsory.total())));
  figure.panels = {{problem_text(last), draw_rungs(rungs)}};
  figure.legend = draw_legend(legend_lines());
  return Section{"overview", with_machines("Overview", Runs{&last}), {std::move(figure)}, true};
}

}  // namespace tilescope
