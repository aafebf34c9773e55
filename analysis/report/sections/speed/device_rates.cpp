// SPDX-License-Identifier: Apache-2.0
// Rates of everything that `bench` timed on a device: a column a kernel.
#include <fmt/format.h>

#include "analysis/report/roofline_subject.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/device_runs.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

/// Rows: problems. Columns: kernels, ours first. With a single kernel also its share of the datasheet's peak.
Table rate_table(const DeviceRuns& group) {
  const std::vector<std::string> labels = group.labels();
  Table table{fmt::format("{}, TFLOP/s, {}.", group.direction == Direction::forward ? "Forward" : "Backward",
                          machine_text(*group.runs.front())),
              {{"problem"}},
              {}};
  for (const std::string& label : labels) table.columns.push_back({label, true});
  const auto& device = group.record->machine.name;
  const std::optional<Machine> machine = device ? machine_of_device(*device) : std::nullopt;
  const bool with_peak = labels.size() == 1 && machine;
  if (with_peak) table.columns.push_back({"of the peak", true});
  for (const AttentionProblem& problem : group.problems()) {
    std::vector<std::string> row = {""};
    for (const std::string& label : labels) {
      const RunSummary* run = group.find(label, problem);
      if (run) row.front() = problem_text(*run);
      row.push_back(run ? fmt::format("{:.1f}", 1e-12 * paper_rate(*run)) : "-");
      const std::optional<double> peak = with_peak ? machine->peak_flops(problem.dtype) : std::nullopt;
      if (peak) row.push_back(fmt::format("{:.1f} %", 100 * paper_rate(*run) / *peak));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> device_rate_section(const std::vector<RunSummary>& runs) {
  Section section{"device-rates", "Rates on a device, problem by problem", {}};
  const RunRecord* record = nullptr;
  for (const DeviceRuns& group : device_runs(runs)) {
    if (group.record != record) {
      record = group.record;
      if (section.blocks.empty()) section.title = with_machines(section.title, {group.runs.front()});
      section.blocks.push_back(CommandLines{{command_text(record->argv)}});
      section.blocks.push_back(Paragraph{fmt::format(
          "On {}, L2 cold, by the papers' count of FLOP. A peak is the datasheet's for the element type.",
          record->machine.name.value_or("an unknown device"))});
    }
    section.blocks.push_back(rate_table(group));
  }
  if (!record) return std::nullopt;
  return section;
}

}  // namespace tilescope
