// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/speed/roofline_figures.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

std::optional<std::int64_t> total(const std::optional<ReadWriteBytes>& bytes) {
  return bytes ? std::optional(bytes->total()) : std::nullopt;
}

std::optional<Machine> machine_behind(const RunSummary& run) {
  if (const auto simulated = machine_of(run)) return simulated;
  const auto& device = run.record->machine.name;
  return run.machine_model.empty() && device ? machine_of_device(*device) : std::nullopt;
}

}  // namespace

std::optional<RunCeilings> run_ceilings(const RunSummary& run) {
  const std::optional<Machine> machine = machine_behind(run);
  if (!machine) return std::nullopt;
  const ElementType dtype = run.on_cuda_cores.value_or(false) ? ElementType::fp32 : run.problem().dtype;
  RunCeilings ceilings{machine->title, ceilings_of(*machine, dtype), {}};
  const std::string measured = machine->name + std::string(kMeasuredSuffix);
  const std::vector<std::string> names = machine_names();
  if (std::ranges::find(names, measured) != names.end()) {
    ceilings.measured = ceilings_of(load_machine(measured), dtype);
    std::erase_if(ceilings.measured, [](const Ceiling& ceiling) { return !ceiling.measured; });
  }
  return ceilings;
}

std::optional<double> RooflineSubject::intensity(double amount, CeilingKind boundary) const {
  const std::optional<double> bytes = work.amount(boundary);
  if (!bytes || *bytes == 0) return std::nullopt;
  return amount / *bytes;
}

std::optional<RooflineSubject> roofline_subject(const RunSummary& run, const RunCeilings& ceilings) {
  RooflineSubject subject{&run,
                          {run.useful_flops, {}, {}, run.exponentials},
                          run.measured_dram.has_value(),
                          0,
                          run.median_seconds.has_value(),
                          ""};
  subject.work.sm_l2_bytes = total(run.measured_sm_l2 ? run.measured_sm_l2 : run.closed_form);
  subject.work.dram_bytes = total(run.measured_dram ? run.measured_dram : run.simulated_dram);
  const Roofline reach = roofline(subject.work, best_documented(ceilings.stated, ceilings.measured));
  subject.limit = reach.limit;
  subject.seconds = run.median_seconds.value_or(reach.least_seconds.value_or(0));
  if (subject.seconds <= 0) return std::nullopt;
  return subject;
}

namespace {

constexpr int kThreadsPerWarp = 32;

std::string instruction_rate(double value) { return format_count(value) + " warps/s"; }

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
    const auto own = std::ranges::find(roofs, dashed, &Roof::dashed);
    return own == roofs.end() ? roofs.front().work_per_second : own->work_per_second;
  };
  if (roofs.empty()) return roofs;
  std::vector<Roof> slanted;
  for (const auto& [kind, name] :
       {std::pair(CeilingKind::sm_l2, "SM<->L2"), std::pair(CeilingKind::dram, "DRAM")}) {
    for (const Ceiling* ceiling : drawn(ceilings, kind)) {
      slanted.push_back({fmt::format("{} {}/s", name, format_bytes(ceiling->per_second)),
                         level_of(!ceiling->measured), ceiling->per_second, !ceiling->measured, false,
                         kind == CeilingKind::dram ? Color::brown : Color::teal});
    }
  }
  std::ranges::stable_sort(
      slanted, [](const Roof& a, const Roof& b) { return *a.bytes_per_second > *b.bytes_per_second; });
  roofs.insert(roofs.end(), slanted.begin(), slanted.end());
  return roofs;
}

/// The level of CUDA cores, where kernels of both kinds stand in one chart.
void add_roof_of_cuda_cores(std::vector<Roof>& roofs, const Subjects& subjects, const RunCeilings& chart) {
  const auto own = std::ranges::find_if(
      subjects, [](const RooflineSubject& subject) { return subject.run->on_cuda_cores.value_or(false); });
  if (own == subjects.end()) return;
  const std::optional<RunCeilings> ceilings = run_ceilings(*own->run);
  const std::vector<const Ceiling*> peaks = drawn(*ceilings, CeilingKind::peak);
  const Ceiling* const charted = find(chart.stated, CeilingKind::peak);
  if (peaks.empty() || (charted && charted->name == peaks.back()->name)) return;
  const Ceiling& peak = *peaks.back();
  roofs.push_back({fmt::format("CUDA cores {}", flops_rate(peak.per_second)), peak.per_second, std::nullopt,
                   !peak.measured, true, Color::olive});
}

/// From the first standard kernel to the first flash2 kernel, at both boundaries.
std::vector<RooflineArrow> arrows_of(const Subjects& subjects) {
  const auto first = [&subjects](Algorithm algorithm) {
    return static_cast<std::size_t>(std::ranges::find_if(subjects,
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
  const auto measured = static_cast<std::size_t>(
      std::ranges::count_if(subjects, [](const auto& subject) { return subject.dram_measured; }));
  const char* how = measured == 0                 ? "simulated"
                    : measured == subjects.size() ? "measured"
                                                  : "measured or simulated";
  return {"at SM<->L2", fmt::format("at DRAM, {}", how), "at what must move"};
}

/// @param work the kernel's amount of what the axes count
template <typename Work>
RooflineChart chart_of(const Subjects& subjects, std::vector<Roof> roofs, Work work) {
  FigureLooks looks;
  std::vector<const RunSummary*> runs;
  for (const RooflineSubject& subject : subjects) runs.push_back(subject.run);
  RooflineChart chart;
  chart.boundaries = boundary_names(subjects);
  chart.roofs = std::move(roofs);
  for (const RooflineSubject& subject : subjects) {
    const double amount = work(subject);
    const double compulsory = static_cast<double>(subject.run->compulsory.total());
    chart.kernels.push_back({title_in(runs, *subject.run),
                             looks.take(subject.run->label, subject.run->algorithm),
                             amount / subject.seconds,
                             {subject.intensity(amount, CeilingKind::sm_l2),
                              subject.intensity(amount, CeilingKind::dram), amount / compulsory}});
  }
  chart.arrows = arrows_of(subjects);
  return chart;
}

Figure named_figure(const char* name, const char* title, const Subjects& subjects,
                    const RunCeilings& ceilings) {
  const RunSummary& first = *subjects.front().run;
  Figure figure;
  figure.name = fmt::format("{}-{}", name, to_string(first.direction));
  figure.title = fmt::format("{}, {} pass.", title, to_string(first.direction));
  figure.panels = {{fmt::format("{}, {}", problem_text(first), ceilings.machine_title), {}}};
  for (const RooflineSubject& subject : subjects) add_command(figure, *subject.run);
  return figure;
}

}  // namespace

std::string flops_rate(double value) { return format_flops(value) + "/s"; }

Figure roofline_figure(const Subjects& subjects, const RunCeilings& ceilings) {
  Figure figure = named_figure("roofline", "Roofline", subjects, ceilings);
  figure.caption =
      "Higher is faster, further right the same work with fewer bytes; a bar that touches a roof is limited "
      "by it.";
  std::vector<Roof> roofs = roofs_of(ceilings, CeilingKind::peak, 1, flops_rate);
  add_roof_of_cuda_cores(roofs, subjects, ceilings);
  RooflineChart chart = chart_of(subjects, std::move(roofs), [](const RooflineSubject& subject) {
    return static_cast<double>(subject.work.flops);
  });
  chart.x_label = "Operational intensity (FLOP per byte at the boundary)";
  chart.y_label = "Useful FLOP per second";
  chart.format_rate = flops_rate;
  if (!chart.arrows.empty()) {
    const RooflineSubject &from = subjects[chart.arrows[0].from], &to = subjects[chart.arrows[0].to];
    // Between units that multiply it is not the order that makes the rate.
    const bool alike = from.run->on_cuda_cores == to.run->on_cuda_cores;
    if (alike)
      figure.panels.front().title +=
          fmt::format(". From {} to {} the {} rate grows {}", from.run->label, to.run->label,
                      from.timed && to.timed ? "measured" : "attainable",
                      format_ratio(to.flops_per_second() / from.flops_per_second()));
  }
  figure.panels.front().drawing = draw(chart);
  return figure;
}

std::optional<Figure> instruction_figure(Subjects subjects, const RunCeilings& ceilings) {
  std::erase_if(subjects, [](const RooflineSubject& subject) { return subject.work.exponentials == 0; });
  std::vector<Roof> roofs =
      roofs_of(ceilings, CeilingKind::exponentials, 1.0 / kThreadsPerWarp, instruction_rate);
  if (subjects.empty() || roofs.empty()) return std::nullopt;
  Figure figure = named_figure("softmax-roofline", "Instruction roofline of the softmax", subjects, ceilings);
  figure.caption =
      "The work is exponentials alone, under the rate at which the SMs compute them; a bar far below every "
      "roof is limited by something else.";
  RooflineChart chart = chart_of(subjects, std::move(roofs), [](const RooflineSubject& subject) {
    return static_cast<double>(subject.work.exponentials) / kThreadsPerWarp;
  });
  chart.x_label = "Exponentials (warp instructions) per byte at the boundary";
  chart.y_label = "Exponential instructions per second";
  chart.format_rate = instruction_rate;
  figure.panels.front().drawing = draw(chart);
  return figure;
}

}  // namespace tilescope
