// SPDX-License-Identifier: Apache-2.0
// With which power of N the measured bytes and the device memory grow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {

double growth_exponent(std::span<const std::pair<double, double>> points) {
  double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const auto& [x, y] : points) {
    const double lx = std::log(x), ly = std::log(y);
    x_sum += lx;
    y_sum += ly;
    xx_sum += lx * lx;
    xy_sum += lx * ly;
  }
  const double n = static_cast<double>(points.size());
  return (n * xy_sum - x_sum * y_sum) / (n * xx_sum - x_sum * x_sum);
}

namespace {

/// (N, bytes a head) of a sweep's points.
std::vector<std::pair<double, double>> per_head(const std::vector<const RunSummary*>& sweep,
                                                double (*bytes)(const RunSummary&)) {
  std::vector<std::pair<double, double>> points;
  for (const RunSummary* run : sweep) {
    const double heads = static_cast<double>(run->problem().batch * run->problem().heads);
    points.emplace_back(static_cast<double>(run->problem().seqlen_q), bytes(*run) / heads);
  }
  return points;
}

constexpr std::size_t kFewestPoints = 3;

/// Of one kernel and direction over its sweeps.
struct Exponents {
  std::size_t sweeps = 0;
  double least = HUGE_VAL, largest = -HUGE_VAL;  // measured
  double off = 0;                                // most of any sweep from the closed form's
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max(), longest = 0;  // N
};

/// A row for each kernel and direction.
Table seqlen_table(const std::vector<RunSummary>& runs, std::vector<std::string>& commands) {
  constexpr std::int64_t kFewestQueries = 2048;  // below, the terms linear in N still count
  std::map<std::pair<std::string, Direction>, Exponents> kernels;
  for (std::vector<const RunSummary*> sweep : token_sweeps(runs)) {
    std::erase_if(sweep, [](const RunSummary* run) {
      return run->problem().seqlen_q < kFewestQueries || !run->measured_sm_l2 || !run->closed_form;
    });
    if (sweep.size() < kFewestPoints) continue;
    const double closed = growth_exponent(
        per_head(sweep, [](const RunSummary& run) { return static_cast<double>(run.closed_form->total()); }));
    const double measured = growth_exponent(per_head(
        sweep, [](const RunSummary& run) { return static_cast<double>(run.measured_sm_l2->total()); }));
    Exponents& all = kernels[{sweep.back()->run->kernel, sweep.back()->direction}];
    ++all.sweeps;
    all.least = std::min(all.least, measured);
    all.largest = std::max(all.largest, measured);
    all.off = std::max(all.off, std::abs(measured - closed));
    all.shortest = std::min(all.shortest, sweep.front()->problem().seqlen_q);
    all.longest = std::max(all.longest, sweep.back()->problem().seqlen_q);
    add_command(commands, *sweep.back()->record);
  }
  Table table{
      fmt::format("Exponent of N in a head's bytes at SM<->L2, at one tile, fitted over N >= {}: from "
                  "the smallest to the largest of all problems, masks and groups. At a fixed tile it "
                  "is 2 by construction, less what is linear in N; that the counters agree is what "
                  "is tested. What the theorems say of M stands under [their constants](#constants).",
                  format_length(kFewestQueries)),
      {{"kernel"},
       {"pass"},
       {"sweeps", true},
       {"N"},
       {"measured", true},
       {"from the closed form's, at most", true}},
      {}};
  for (const auto& [key, all] : kernels) {
    table.rows.push_back({key.first, std::string(to_string(key.second)), std::to_string(all.sweeps),
                          fmt::format("{} ... {}", format_length(all.shortest), format_length(all.longest)),
                          fmt::format("{:.3f} ... {:.3f}", all.least, all.largest),
                          fmt::format("{:.3f}", all.off)});
  }
  return table;
}

/// Exponents of SM<->L2 reads in what varies along measured sweeps.
template <typename Value>
Table read_table(const std::string& caption, const std::vector<Sweep>& sweeps, Value value,
                 std::vector<std::string>& commands) {
  Table table{caption,
              {{"kernel"},
               {"pass"},
               {"problem"},
               {"points"},
               {"closed form", true},
               {"measured", true},
               {"measured, per doubling", true}},
              {}};
  for (const Sweep& sweep : sweeps) {
    for (const SweepSeries& series : sweep.series) {
      std::vector<std::pair<double, double>> closed, measured;
      std::string points;
      for (const RunSummary* run : series.points) {
        if (!run->measured_sm_l2 || !run->closed_form) continue;
        const auto x = static_cast<double>(value(*run));
        closed.emplace_back(x, static_cast<double>(run->closed_form->read_bytes));
        measured.emplace_back(x, static_cast<double>(run->measured_sm_l2->read_bytes));
        points += fmt::format("{}{}", points.empty() ? "" : ", ", value(*run));
      }
      if (measured.size() < kFewestPoints) continue;
      const double slope = growth_exponent(measured);
      table.rows.push_back({series.label, std::string(to_string(sweep.direction)),
                            problem_text(*series.points.back()), points,
                            fmt::format("{:.3f}", growth_exponent(closed)), fmt::format("{:.3f}", slope),
                            format_ratio(std::exp2(slope))});
      add_command(commands, *series.points.back()->record);
    }
  }
  return table;
}

}  // namespace

std::optional<Section> growth_section(const std::vector<RunSummary>& runs) {
  std::vector<std::string> commands;
  Section section{
      "growth",
      with_machines("How the bytes grow with the sequence, the tile and the head", measured_runs(runs)),
      {}};
  for (Table& table : std::vector{
           seqlen_table(runs, commands),
           read_table("Exponent of the tile's side that sets how often the other axis is streamed (rows "
                      "of Q forward, of K and V backward), in SM<->L2 reads.",
                      tile_sweeps(runs), swept_block, commands),
           read_table(
               "Exponent of head_dim in SM<->L2 reads, at one tile side.", head_dim_sweeps(runs),
               [](const RunSummary& run) { return run.problem().head_dim; }, commands)}) {
    if (!table.rows.empty()) section.blocks.push_back(std::move(table));
  }
  add_dram_growth(section, runs, commands);
  if (section.blocks.empty()) return std::nullopt;
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
