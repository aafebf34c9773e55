// SPDX-License-Identifier: Apache-2.0
// Whether kernels move more than they must: a verdict, and one figure of what a problem's kernels must move,
// what the models say that they move, and what counters saw, at both boundaries.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>

#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// The run of an algorithm that moves least at DRAM, or null.
const RunSummary* least(const std::vector<const RunSummary*>& runs, Algorithm algorithm,
                        Direction direction = Direction::forward) {
  const RunSummary* found = nullptr;
  for (const RunSummary* run : runs) {
    if (run->algorithm != algorithm || run->direction != direction || !dram_ratio(*run) ||
        !sm_l2_ratio(*run)) {
      continue;
    }
    if (found == nullptr || *dram_ratio(*run) < *dram_ratio(*found)) found = run;
  }
  return found;
}

/// standard and flash2, forward, and flash2's backward pass, which may be null.
struct Compared {
  const RunSummary *standard = nullptr, *flash = nullptr, *backward = nullptr;
};

/// The most telling problem on which both were measured, or else simulated, in one record.
Compared standard_and_flash(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<const RunSummary*>> problems;  // of one record each
  for (const auto& problem : group_by_problem(headline_runs(runs))) {
    std::ranges::move(group_by_record(problem), std::back_inserter(problems));
  }
  std::erase_if(problems, [](const auto& members) {
    return !least(members, Algorithm::standard) || !least(members, Algorithm::flash2);
  });
  if (problems.empty()) return {};
  const auto measured = [](const auto& members) { return members.front()->measured_dram.has_value(); };
  if (std::any_of(problems.begin(), problems.end(), measured)) std::erase_if(problems, std::not_fn(measured));
  const auto members = most_telling(problems, 1).front();
  return {least(members, Algorithm::standard), least(members, Algorithm::flash2),
          least(members, Algorithm::flash2, Direction::backward)};
}

/// The forward pass of flash2 kernels that moves most at DRAM against what it must, counted as `flash` is.
const RunSummary& most(const std::vector<RunSummary>& runs, const RunSummary& flash) {
  const RunSummary* found = &flash;
  for (const RunSummary& run : runs) {
    if (run.algorithm != Algorithm::flash2 || run.direction != Direction::forward || !dram_ratio(run) ||
        run.measured_dram.has_value() != flash.measured_dram.has_value()) {
      continue;
    }
    if (*dram_ratio(run) > *dram_ratio(*found)) found = &run;
  }
  return *found;
}

}  // namespace

std::optional<Finding> bytes_verdict(const std::vector<RunSummary>& runs) {
  const auto [standard, flash, backward] = standard_and_flash(runs);
  if (!flash) return std::nullopt;
  const double dram = *dram_ratio(*flash);
  const RunSummary& worst = most(runs, *flash);
  const std::string low = format_ratio(dram), high = format_ratio(*dram_ratio(worst));
  constexpr double kNearly = 1.1;
  const bool backward_more = backward && *dram_ratio(*backward) > kNearly;
  const bool nearly = dram <= kNearly, grows = *dram_ratio(worst) > kNearly;
  return Finding{
      "Do they move more than they must?", low == high ? low : low + " ... " + high,
      fmt::format(
          "**{}{}** At DRAM `{}`'s forward pass moves {} the {} that it must ({} at SM<->L2){}; `{}`'s {} "
          "({} at SM<->L2). {}, {}, {}.{}",
          !nearly         ? "More."
          : backward_more ? "Forward hardly more"
                          : "Hardly more",
          !nearly ? ""
          : grows ? ", as long as the L2 holds what is streamed."
                  : ".",
          flash->run->kernel, low, format_bytes(static_cast<double>(flash->compulsory.total())),
          format_ratio(*sm_l2_ratio(*flash)),
          backward ? ", its backward pass " + format_ratio(*dram_ratio(*backward)) : "",
          standard->run->kernel, format_ratio(*dram_ratio(*standard)), format_ratio(*sm_l2_ratio(*standard)),
          problem_text(*flash), machine_text(*flash), flash->measured_dram ? "measured" : "simulated",
          low == high
              ? ""
              : fmt::format(" Forward at most {}: `{}`, {}.", high, worst.label, problem_text(worst))),
      nearly ? Outcome::good : Outcome::mixed, "summary"};
}

namespace {

using Rungs = std::vector<const RunSummary*>;

/// Forward, in one piece of memory, known to formula, simulation and counters.
bool tells_all(const RunSummary& run) {
  return run.direction == Direction::forward && run.run->pages != PagePlacement::random && run.closed_form &&
         run.measured_sm_l2 && run.simulated_dram && run.measured_dram;
}

/// One run a kernel, that with the fewest choices beside its own, by algorithm and name; what goes by a name
/// of its own is younger than flash1.
Rungs rungs_of(Rungs runs) {
  const auto kernel = [](const RunSummary* run) {
    return std::tuple(run->algorithm.value_or(Algorithm::flash2), run->run->kernel);
  };
  std::stable_sort(runs.begin(), runs.end(), [&kernel](const RunSummary* a, const RunSummary* b) {
    return std::tuple(kernel(a), a->label.size()) < std::tuple(kernel(b), b->label.size());
  });
  const auto same = [&kernel](const RunSummary* a, const RunSummary* b) { return kernel(a) == kernel(b); };
  runs.erase(std::unique(runs.begin(), runs.end(), same), runs.end());
  return runs;
}

/// Of the problem on which most algorithms meet, then most kernels, and of equals the longest.
Rungs most_telling_rungs(const std::vector<RunSummary>& runs) {
  Rungs telling, best;
  for (const RunSummary& run : runs) {
    if (tells_all(run)) telling.push_back(&run);
  }
  const auto rank = [](const Rungs& rungs) {
    std::set<Algorithm> algorithms;
    std::int64_t seqlen = 0;
    for (const RunSummary* run : rungs) {
      if (run->algorithm) algorithms.insert(*run->algorithm);
      seqlen = run->problem().seqlen_q;
    }
    return std::tuple(algorithms.size(), rungs.size(), seqlen);
  };
  for (const Rungs& together : group_by_problem(telling)) {
    const Rungs rungs = rungs_of(together);
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
Drawing draw_rungs(const Rungs& rungs) {
  constexpr double kRow = 52, kNote = 0.34, kMarks = 0.7;  // of the height of a row
  const auto must = static_cast<double>(rungs.front()->compulsory.total());
  auto top = static_cast<double>(rungs.size());
  LineChart chart;
  chart.y.high = top;
  chart.y.logarithmic = false;
  chart.plot_height = kRow * top;
  chart.series.push_back({"must move", kFloorLook, {{must, 0}, {must, top}}});
  KernelLooks looks;
  for (const RunSummary* run : rungs) {
    for (LineSeries& series : rung_series(*run, looks.take(run->algorithm), top - kMarks)) {
      chart.series.push_back(std::move(series));
    }
    chart.notes.push_back({{must, top - kNote}, run->label + ": " + times_text(*run, must)});
    top -= 1;
  }
  chart.x = byte_axis("Bytes read and written", chart.series, &ChartPoint::x);
  return draw(chart, false);
}

}  // namespace

std::optional<Section> glance_section(const std::vector<RunSummary>& runs) {
  const Rungs rungs = most_telling_rungs(runs);
  if (rungs.size() < 2) return std::nullopt;
  Figure figure;
  for (const RunSummary* run : rungs) add_command(figure, *run);
  const RunSummary& last = *rungs.back();
  figure.name = "bytes-at-a-glance";
  figure.title = "What must move, what the models say, what counters saw.";
  figure.caption = fmt::format(
      "{} on {}, whose kernels must move {}. Between SMs and L2 the formula of a kernel's tiles gives its "
      "bytes. How many of them reach DRAM is the L2's doing, and a replay of the tiles through a model of it "
      "says so; the line between the two is what the L2 saves. Counters are the crosses, and the numbers are "
      "theirs: times what must move.",
      problem_text(last), machine_text(last), format_bytes(static_cast<double>(last.compulsory.total())));
  figure.panels = {{problem_text(last), draw_rungs(rungs)}};
  figure.legend = draw_legend(legend_lines());
  return Section{"glance", with_machines("At a glance", Rungs{&last}), {std::move(figure)}, true};
}

}  // namespace tilescope
