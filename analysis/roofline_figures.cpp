// SPDX-License-Identifier: Apache-2.0
// Hierarchical rooflines: one intensity for each boundary, and the rate that was reached or that the ceilings
// allow; and the softmax's exponentials on an instruction roofline.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/chart_looks.hpp"
#include "analysis/report_sections.hpp"
#include "analysis/roofline_subject.hpp"
#include "analysis/sweep.hpp"

namespace tilescope {
namespace {

using Subjects = std::vector<RooflineSubject>;

constexpr int kThreadsPerWarp = 32;

std::string flops_rate(double value) { return format_flops(value) + "/s"; }
std::string instruction_rate(double value) { return format_count(value) + "/s"; }

const Ceiling* find(const std::vector<Ceiling>& ceilings, CeilingKind kind) {
  const auto found = std::find_if(ceilings.begin(), ceilings.end(),
                                  [kind](const Ceiling& ceiling) { return ceiling.kind == kind; });
  return found == ceilings.end() ? nullptr : &*found;
}

/// Ceilings of one kind for drawing: measured ones solid, stated ones dashed. What no document states gives
/// way to what was measured.
std::vector<const Ceiling*> drawn(const RunCeilings& ceilings, CeilingKind kind) {
  std::vector<const Ceiling*> chosen;
  const Ceiling* measured = find(ceilings.measured, kind);
  if (const Ceiling* stated = find(ceilings.stated, kind); stated && (stated->documented || !measured)) {
    chosen.push_back(stated);
  }
  if (measured) chosen.push_back(measured);
  return chosen;
}

/// @param level the ceiling of the chart's work; `unit` turns its rate into what the y axis counts
std::vector<Roof> roofs_of(const RunCeilings& ceilings, CeilingKind level, double unit,
                           std::string (*format_rate)(double)) {
  std::vector<Roof> roofs;
  for (const Ceiling* ceiling : drawn(ceilings, level)) {
    const double rate = ceiling->per_second * unit;
    roofs.push_back({fmt::format("{} {}", ceiling->name, format_rate(rate)), rate, std::nullopt,
                     !ceiling->measured, !roofs.empty()});
  }
  const auto level_of = [&roofs](bool dashed) {
    const auto own = std::find_if(roofs.begin(), roofs.end(),
                                  [dashed](const Roof& roof) { return roof.dashed == dashed; });
    return own == roofs.end() ? roofs.front().work_per_second : own->work_per_second;
  };
  if (roofs.empty()) return roofs;
  std::vector<Roof> slanted;
  for (const auto& [kind, name] :
       {std::pair(CeilingKind::sm_l2, "SM<->L2"), std::pair(CeilingKind::dram, "DRAM")}) {
    for (const Ceiling* ceiling : drawn(ceilings, kind)) {
      slanted.push_back({fmt::format("{} {}/s", name, format_bytes(ceiling->per_second)),
                         level_of(!ceiling->measured), ceiling->per_second, !ceiling->measured, false});
    }
  }
  std::stable_sort(slanted.begin(), slanted.end(),
                   [](const Roof& a, const Roof& b) { return *a.bytes_per_second > *b.bytes_per_second; });
  slanted.back().label_below = true;
  roofs.insert(roofs.end(), slanted.begin(), slanted.end());
  return roofs;
}

/// From the first standard kernel to the first flash2 kernel, at both boundaries.
std::vector<RooflineArrow> arrows_of(const Subjects& subjects) {
  const auto first = [&subjects](Algorithm algorithm) {
    return static_cast<std::size_t>(std::find_if(subjects.begin(), subjects.end(),
                                                 [algorithm](const RooflineSubject& subject) {
                                                   return subject.run->algorithm == algorithm;
                                                 }) -
                                    subjects.begin());
  };
  const std::size_t from = first(Algorithm::standard), to = first(Algorithm::flash2);
  if (from == subjects.size() || to == subjects.size()) return {};
  return {{from, to, 0}, {from, to, 1}};
}

std::vector<std::string> boundary_names(const Subjects& subjects) {
  const auto measured = static_cast<std::size_t>(std::count_if(
      subjects.begin(), subjects.end(), [](const auto& subject) { return subject.dram_measured; }));
  const char* how = measured == 0                 ? "simulated"
                    : measured == subjects.size() ? "measured"
                                                  : "measured or simulated";
  return {"at SM<->L2", fmt::format("at DRAM, {}", how), "compulsory traffic"};
}

/// @param work the kernel's amount of what the axes count
template <typename Work>
RooflineChart chart_of(const Subjects& subjects, std::vector<Roof> roofs, Work work) {
  std::vector<const RunSummary*> runs;
  for (const RooflineSubject& subject : subjects) runs.push_back(subject.run);
  RooflineChart chart;
  chart.boundaries = boundary_names(subjects);
  chart.roofs = std::move(roofs);
  KernelLooks palette;
  for (const RooflineSubject& subject : subjects) {
    const double amount = work(subject);
    const double compulsory = static_cast<double>(subject.run->compulsory.total());
    chart.kernels.push_back({title_in(runs, *subject.run),
                             palette.take(subject.run->algorithm),
                             amount / subject.seconds,
                             {subject.intensity(amount, CeilingKind::sm_l2),
                              subject.intensity(amount, CeilingKind::dram), amount / compulsory}});
  }
  chart.arrows = arrows_of(subjects);
  return chart;
}

Figure named_figure(const char* name, const char* title, const Subjects& subjects,
                    const RunCeilings& ceilings, int number) {
  const RunSummary& first = *subjects.front().run;
  Figure figure;
  figure.name = fmt::format("{}-{}-{}", name, to_string(first.direction), number);
  figure.title = fmt::format("{}, {} pass, {}.", title, to_string(first.direction), ceilings.machine_title);
  figure.caption = problem_text(first);
  for (const RooflineSubject& subject : subjects) add_command(figure, *subject.run);
  return figure;
}

Figure roofline_figure(const Subjects& subjects, const RunCeilings& ceilings, int number) {
  Figure figure = named_figure("roofline", "Roofline", subjects, ceilings, number);
  RooflineChart chart =
      chart_of(subjects, roofs_of(ceilings, CeilingKind::peak, 1, flops_rate),
               [](const RooflineSubject& subject) { return static_cast<double>(subject.work.flops); });
  chart.x_label = "Operational intensity (FLOP per byte at the boundary)";
  chart.y_label = "Useful FLOP per second";
  chart.format_rate = flops_rate;
  if (!chart.arrows.empty()) {
    const RooflineSubject &from = subjects[chart.arrows[0].from], &to = subjects[chart.arrows[0].to];
    figure.caption += fmt::format(". From {} to {} the {} rate grows {}.", from.run->label, to.run->label,
                                  from.timed && to.timed ? "measured" : "attainable",
                                  format_ratio(to.flops_per_second() / from.flops_per_second()));
  }
  figure.svg = draw(chart);
  return figure;
}

/// Kernels that compute exponentials, on the ceiling of the unit that does. Nothing without that ceiling.
std::optional<Figure> instruction_figure(Subjects subjects, const RunCeilings& ceilings, int number) {
  std::erase_if(subjects, [](const RooflineSubject& subject) { return subject.work.exponentials == 0; });
  std::vector<Roof> roofs =
      roofs_of(ceilings, CeilingKind::exponentials, 1.0 / kThreadsPerWarp, instruction_rate);
  if (subjects.empty() || roofs.empty()) return std::nullopt;
  Figure figure =
      named_figure("softmax-roofline", "Instruction roofline of the softmax", subjects, ceilings, number);
  RooflineChart chart = chart_of(subjects, std::move(roofs), [](const RooflineSubject& subject) {
    return static_cast<double>(subject.work.exponentials) / kThreadsPerWarp;
  });
  chart.x_label = "Exponential instructions of a warp, per byte at the boundary";
  chart.y_label = "Exponential instructions per second";
  chart.format_rate = instruction_rate;
  figure.svg = draw(chart);
  return figure;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : std::string("-");
}

/// What the shares are of, and whether rates were measured.
std::string limit_caption(const Subjects& subjects, const std::vector<Ceiling>& ceilings) {
  std::string text = "Shares are of";
  for (const Ceiling& ceiling : ceilings) {
    const bool bytes = ceiling.kind == CeilingKind::sm_l2 || ceiling.kind == CeilingKind::dram;
    text += fmt::format("{} {}, {}{}", &ceiling == &ceilings.front() ? "" : ";", ceiling.name,
                        bytes                               ? format_bytes(ceiling.per_second)
                        : ceiling.kind == CeilingKind::peak ? format_flops(ceiling.per_second)
                                                            : format_count(ceiling.per_second),
                        ceiling.measured ? "/s measured" : "/s stated");
  }
  const bool any_timed = std::any_of(subjects.begin(), subjects.end(), [](const auto& s) { return s.timed; });
  return text + (any_timed ? "." : ". Rates are those that the ceilings allow.");
}

const char* column_name(CeilingKind kind) {
  constexpr const char* names[] = {"of peak", "of SM<->L2", "of DRAM", "of exponentials"};
  return names[static_cast<std::size_t>(kind)];
}

Table limit_table(const Subjects& subjects, const RunCeilings& ceilings) {
  const std::vector<Ceiling> firm = firmest(ceilings.stated, ceilings.measured);
  Table table{
      limit_caption(subjects, firm),
      {{"pass"}, {"kernel"}, {"FLOP/B SM<->L2", true}, {"DRAM", true}, {"compulsory", true}, {"rate", true}},
      {}};
  for (const Ceiling& ceiling : firm) table.columns.push_back({column_name(ceiling.kind), true});
  table.columns.push_back({"limit"});
  const bool any_timed = std::any_of(subjects.begin(), subjects.end(), [](const auto& s) { return s.timed; });
  const auto number = [](const std::optional<double>& value) {
    return value ? format_number(*value) : std::string("-");
  };
  for (const RooflineSubject& subject : subjects) {
    const double flops = static_cast<double>(subject.work.flops);
    std::vector<std::string> row = {
        std::string(to_string(subject.run->direction)),
        subject.run->label,
        number(subject.intensity(flops, CeilingKind::sm_l2)),
        number(subject.intensity(flops, CeilingKind::dram)),
        format_number(flops / static_cast<double>(subject.run->compulsory.total())),
        flops_rate(subject.flops_per_second()) + (any_timed && !subject.timed ? ", allowed" : "")};
    for (const Ceiling& ceiling : firm) {
      row.push_back(percent(share_of(ceiling, subject.work, subject.seconds)));
    }
    row.push_back(subject.limit);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> roofline_section(const std::vector<RunSummary>& runs) {
  Section section{"roofline", "Roofline", {}};
  section.blocks.push_back(
      Paragraph{"Useful FLOP are 2 products forward and 5 backward over the visible (query, key) pairs, "
                "however many a kernel executes; exponentials are one for each visible pair and pass that "
                "computes P from the scores. A kernel is a horizontal bar: filled marker, its intensity "
                "at SM<->L2; open marker, at DRAM; cross, what compulsory traffic would give. The gap "
                "between the first two is reuse in the L2. A bar stands at the measured rate or, where no "
                "time was measured, at the rate that the ceilings allow: the ceiling that it touches is its "
                "limit. Arrows lead from standard to flash2 at both boundaries. Dashed ceilings come from "
                "datasheets and the literature, solid ones were measured. The tables name the ceiling that "
                "takes a kernel's work longest, and the share of each that the kernel reaches."});
  int number = 0;
  for (const auto& members : group_by_problem(headline_runs(runs))) {
    const std::optional<RunCeilings> ceilings = run_ceilings(*members.front());
    if (!ceilings || !find(ceilings->stated, CeilingKind::peak)) continue;
    ++number;
    Subjects in_order;  // forward first
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      Subjects side;
      for (const RunSummary* run : members) {
        if (run->direction != direction || (!run->closed_form && !run->measured_sm_l2)) continue;
        if (const auto subject = roofline_subject(*run, *ceilings)) side.push_back(*subject);
      }
      if (side.empty()) continue;
      section.blocks.push_back(roofline_figure(side, *ceilings, number));
      if (auto figure = instruction_figure(side, *ceilings, number)) section.blocks.push_back(*figure);
      in_order.insert(in_order.end(), side.begin(), side.end());
    }
    section.blocks.push_back(limit_table(in_order, *ceilings));
  }
  if (section.blocks.size() == 1) return std::nullopt;
  return section;
}

}  // namespace tilescope
