// SPDX-License-Identifier: Apache-2.0
// Device memory against the length of the sequence.
#include <fmt/format.h>

#include "analysis/report/document/add_new.hpp"
#include "analysis/report/figures/growth_exponent.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::optional<std::int64_t> device_bytes(const RunSummary& run) {
  const auto found = run.run->device_bytes.find(std::string(to_string(run.direction)));
  if (found == run.run->device_bytes.end() || found->second <= 0) return std::nullopt;
  return found->second;
}

}  // namespace

std::optional<Section> memory_section(const std::vector<RunSummary>& runs) {
  Table table{
      "Device memory that the tensors of one direction took, as the driver counts it. Exponents are those "
      "of the last doubling of N; inputs and outputs alone would give 1.",
      {{"kernel"},
       {"pass"},
       {"problem"},
       {"N"},
       {"first", true},
       {"last", true},
       {"x inputs and outputs", true},
       {"exponent of N", true}},
      {}};
  std::vector<std::string> commands, machines;
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    for (const SweepSeries& series : sweep.series) {
      std::vector<const RunSummary*> known;
      std::vector<std::pair<double, double>> points;  // N, bytes
      for (const RunSummary* run : series.points) {
        const auto bytes = device_bytes(*run);
        if (!bytes) continue;
        known.push_back(run);
        points.emplace_back(static_cast<double>(run->problem().seqlen_q), static_cast<double>(*bytes));
      }
      if (points.size() < 2) continue;
      const RunSummary *first = known.front(), *last = known.back();
      const double needed = static_cast<double>(last->compulsory.total());
      table.rows.push_back({series.label, std::string(to_string(sweep.direction)), problem_text(*last, false),
                            fmt::format("{} ... {}", format_length(first->problem().seqlen_q),
                                        format_length(last->problem().seqlen_q)),
                            format_bytes(points.front().second), format_bytes(points.back().second),
                            format_ratio(points.back().second / needed),
                            fmt::format("{:.2f}", growth_exponent({points.end() - 2, points.end()}))});
      add_command(commands, *last->record);
      add_new(machines, last->record->machine.name.value_or("an unknown device"));
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"memory",
                 with_machines("Device memory against sequence length", machines),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
