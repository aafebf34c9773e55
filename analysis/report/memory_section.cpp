// SPDX-License-Identifier: Apache-2.0
// Device memory against the length of the sequence.
#include <fmt/format.h>

#include <cmath>

#include "analysis/report/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "analysis/report_format.hpp"

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
  std::vector<std::string> commands;
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    for (const SweepSeries& series : sweep.series) {
      std::vector<std::pair<const RunSummary*, std::int64_t>> points;
      for (const RunSummary* run : series.points) {
        if (const auto bytes = device_bytes(*run)) points.emplace_back(run, *bytes);
      }
      if (points.size() < 2) continue;
      const auto [last, last_bytes] = points.back();
      const auto [before, before_bytes] = points[points.size() - 2];
      const double exponent = std::log(static_cast<double>(last_bytes) / static_cast<double>(before_bytes)) /
                              std::log(static_cast<double>(last->problem().seqlen_q) /
                                       static_cast<double>(before->problem().seqlen_q));
      const double needed = static_cast<double>(last->compulsory.read_bytes + last->compulsory.write_bytes);
      table.rows.push_back({series.label, std::string(to_string(sweep.direction)), problem_text(*last, false),
                            fmt::format("{} ... {}", format_length(points.front().first->problem().seqlen_q),
                                        format_length(last->problem().seqlen_q)),
                            format_bytes(static_cast<double>(points.front().second)),
                            format_bytes(static_cast<double>(last_bytes)),
                            format_ratio(static_cast<double>(last_bytes) / needed),
                            fmt::format("{:.2f}", exponent)});
      add_command(commands, *last->record);
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"memory",
                 "Device memory against sequence length",
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
