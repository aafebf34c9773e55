// SPDX-License-Identifier: Apache-2.0
// Hierarchical rooflines: one intensity for each boundary, and the rate that the ceilings allow.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/chart_looks.hpp"
#include "analysis/report_sections.hpp"
#include "analysis/roofline.hpp"
#include "analysis/sweep.hpp"

namespace tilescope {
namespace {

std::optional<double> intensity(std::int64_t flops, const std::optional<ReadWriteBytes>& bytes) {
  if (!bytes || bytes->total() == 0) return std::nullopt;
  return static_cast<double>(flops) / static_cast<double>(bytes->total());
}

std::optional<std::int64_t> total(const std::optional<ReadWriteBytes>& bytes) {
  return bytes ? std::optional(bytes->total()) : std::nullopt;
}

Roofline roofline_of(const RunSummary& run, const Machine& machine) {
  return roofline(run.useful_flops, total(run.closed_form), total(run.simulated_dram), machine,
                  run.problem().dtype);
}

std::vector<Roof> roofs_of(const Machine& machine, ElementType dtype) {
  const auto peak = machine.peak_flops_per_second.find(std::string(to_string(dtype)));
  if (peak == machine.peak_flops_per_second.end()) return {};
  const Fact<double>& flops = peak->second;
  const auto rate = [](double value) { return format_flops(value) + "/s"; };
  const auto is_measured = [](const Fact<double>& fact) { return fact.kind == "measured"; };
  std::vector<Roof> roofs = {{fmt::format("{} peak {}", to_string(dtype), rate(flops.value)), flops.value,
                              std::nullopt, !is_measured(flops)}};
  const auto add = [&](const char* name, const Fact<double>& bandwidth) {
    roofs.push_back({fmt::format("{} {}/s", name, format_bytes(bandwidth.value)), flops.value,
                     bandwidth.value, !is_measured(bandwidth)});
  };
  if (machine.l2_bytes_per_second) add("SM<->L2", *machine.l2_bytes_per_second);
  add("DRAM", machine.dram_bytes_per_second);
  return roofs;
}

/// From the first standard kernel to the first flash2 kernel, at both boundaries.
std::vector<RooflineArrow> arrows_of(const std::vector<const RunSummary*>& runs) {
  const auto first = [&runs](Algorithm algorithm) {
    return static_cast<std::size_t>(
        std::find_if(runs.begin(), runs.end(),
                     [algorithm](const RunSummary* run) { return run->algorithm == algorithm; }) -
        runs.begin());
  };
  const std::size_t from = first(Algorithm::standard), to = first(Algorithm::flash2);
  if (from == runs.size() || to == runs.size()) return {};
  return {{from, to, 0}, {from, to, 1}};
}

Figure roofline_figure(const std::vector<const RunSummary*>& runs, const Machine& machine, int number) {
  const RunSummary& first = *runs.front();
  Figure figure;
  RooflineChart chart;
  chart.boundaries = {"at SM<->L2", "at DRAM, simulated", "compulsory traffic"};
  chart.roofs = roofs_of(machine, first.problem().dtype);
  KernelLooks palette;
  for (const RunSummary* run : runs) {
    const Roofline limits = roofline_of(*run, machine);
    const double seconds = run->median_seconds.value_or(0);
    const double rate = seconds > 0 ? static_cast<double>(run->useful_flops) / seconds
                                    : limits.attainable_flops_per_second.value_or(0);
    chart.kernels.push_back(
        {title_in(runs, *run),
         palette.take(run->algorithm),
         rate,
         {intensity(run->useful_flops, run->closed_form), intensity(run->useful_flops, run->simulated_dram),
          intensity(run->useful_flops, run->compulsory)}});
    add_command(figure, *run);
  }
  chart.arrows = arrows_of(runs);
  figure.name = fmt::format("roofline-{}-{}", to_string(first.direction), number);
  figure.title = fmt::format("Roofline, {} pass, {}.", to_string(first.direction), machine.title);
  figure.caption = problem_text(first);
  const auto rate_of = [&chart](std::size_t kernel) { return chart.kernels[kernel].flops_per_second; };
  if (!chart.arrows.empty()) {
    const RooflineArrow& arrow = chart.arrows.front();
    const RunSummary &from = *runs[arrow.from], &to = *runs[arrow.to];
    figure.caption += fmt::format(". From {} to {} the {} rate grows {}.", from.label, to.label,
                                  from.median_seconds && to.median_seconds ? "measured" : "attainable",
                                  format_ratio(rate_of(arrow.to) / rate_of(arrow.from)));
  }
  figure.svg = draw(chart);
  return figure;
}

Table limit_table(const std::vector<const RunSummary*>& runs, const Machine& machine) {
  const bool timed =
      std::any_of(runs.begin(), runs.end(), [](const RunSummary* run) { return run->median_seconds; });
  Table table{"",
              {{"pass"},
               {"kernel"},
               {"FLOP/B at SM<->L2", true},
               {"at DRAM", true},
               {"compulsory", true},
               {"attainable", true},
               {"limit"}},
              {}};
  if (timed) table.columns.insert(table.columns.end(), {{"achieved", true}, {"of attainable", true}});
  const auto number = [](const std::optional<double>& value) {
    return value ? format_number(*value) : std::string("-");
  };
  for (const RunSummary* run : runs) {
    const Roofline limits = roofline_of(*run, machine);
    const double attainable = limits.attainable_flops_per_second.value_or(0);
    std::vector<std::string> row = {std::string(to_string(run->direction)),
                                    run->label,
                                    number(intensity(run->useful_flops, run->closed_form)),
                                    number(intensity(run->useful_flops, run->simulated_dram)),
                                    number(intensity(run->useful_flops, run->compulsory)),
                                    attainable > 0 ? format_flops(attainable) + "/s" : "-",
                                    limits.limit};
    if (timed && run->median_seconds) {
      const double achieved = static_cast<double>(run->useful_flops) / *run->median_seconds;
      row.push_back(format_flops(achieved) + "/s");
      row.push_back(attainable > 0 ? fmt::format("{:.1f} %", 100 * achieved / attainable) : "-");
    } else if (timed) {
      row.insert(row.end(), {"-", "-"});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> roofline_section(const std::vector<RunSummary>& runs) {
  Section section{"roofline", "Roofline", {}};
  section.blocks.push_back(
      Paragraph{"Useful FLOP are 2 products forward and 5 backward over the visible (query, key) pairs, "
                "however many a kernel executes. A kernel is a horizontal bar: filled marker, its intensity "
                "at SM<->L2; open marker, at DRAM; cross, what compulsory traffic would give. The gap "
                "between the first two is reuse in the L2. A bar stands at the measured rate or, where no "
                "time was measured, at the rate that the ceilings allow: the ceiling that it touches is its "
                "limit. Arrows lead from standard to flash2 at both boundaries. Dashed ceilings come from "
                "datasheets and the literature, solid ones were measured."});
  int number = 0;
  for (const auto& members : group_by_problem(headline_runs(runs))) {
    const std::optional<Machine> machine = machine_of(*members.front());
    if (!machine || roofs_of(*machine, members.front()->problem().dtype).empty()) continue;
    ++number;
    std::vector<const RunSummary*> in_order;  // forward first
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      std::vector<const RunSummary*> side;
      std::copy_if(
          members.begin(), members.end(), std::back_inserter(side),
          [direction](const RunSummary* run) { return run->direction == direction && run->closed_form; });
      if (!side.empty()) section.blocks.push_back(roofline_figure(side, *machine, number));
      in_order.insert(in_order.end(), side.begin(), side.end());
    }
    section.blocks.push_back(limit_table(in_order, *machine));
  }
  if (section.blocks.size() == 1) return std::nullopt;
  return section;
}

}  // namespace tilescope
