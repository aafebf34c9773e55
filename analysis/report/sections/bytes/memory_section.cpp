// SPDX-License-Identifier: Apache-2.0
// How the device memory that a direction takes beside its inputs and outputs grows with N.
#include "analysis/report/sections/bytes/extra_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

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

/// What the driver may add to each tensor: it gives memory in pages.
constexpr double kPageBytes = 2 << 20;
constexpr double kMostTensors = 12;

}  // namespace

std::vector<ExtraMemory> extra_memory(const std::vector<RunSummary>& runs) {
  std::vector<ExtraMemory> all;
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    for (const SweepSeries& series : sweep.series) {
      ExtraMemory memory;
      std::vector<std::pair<double, double>> points;  // N, bytes
      for (const RunSummary* run : series.points) {
        const auto bytes = device_bytes(*run);
        if (!bytes) continue;
        if (memory.first == nullptr) memory.first = run;
        memory.last = run;
        memory.bytes = static_cast<double>(*bytes);
        memory.extra_bytes = memory.bytes - static_cast<double>(run->compulsory.total());
        points.emplace_back(static_cast<double>(run->problem().seqlen_q), memory.extra_bytes);
      }
      if (points.size() < 2) continue;
      memory.label = series.label;
      const bool positive = points.end()[-1].second > 0 && points.end()[-2].second > 0;
      if (positive && memory.extra_bytes > kMostTensors * kPageBytes)
        memory.exponent = growth_exponent({points.end() - 2, points.end()});
      all.push_back(std::move(memory));
    }
  }
  return all;
}

std::optional<Section> memory_section(const std::vector<RunSummary>& runs) {
  Table table{
      fmt::format(
          "Device memory that the tensors of one direction took, as the driver counts it, and what of "
          "it is neither input nor output. Exponents are those of that rest over the last doubling of "
          "N; a dash: it is less than the {:.0f} MB that the driver's pages may be.",
          1e-6 * kMostTensors * kPageBytes),
      {{"kernel"},
       {"pass"},
       {"problem"},
       {"N"},
       {"at the last", true},
       {"x inputs and outputs", true},
       {"beside them", true},
       {"exponent of N in it", true}},
      {}};
  std::vector<std::string> commands, machines;
  for (const ExtraMemory& memory : extra_memory(runs)) {
    const RunSummary &first = *memory.first, &last = *memory.last;
    table.rows.push_back({memory.label, std::string(to_string(last.direction)), problem_text(last, false),
                          fmt::format("{} ... {}", format_length(first.problem().seqlen_q),
                                      format_length(last.problem().seqlen_q)),
                          format_bytes(memory.bytes),
                          format_ratio(memory.bytes / static_cast<double>(last.compulsory.total())),
                          format_bytes(std::max(0.0, memory.extra_bytes)),
                          memory.exponent ? fmt::format("{:.2f}", *memory.exponent) : "-"});
    add_command(commands, *last.record);
    add_new(machines, last.record->machine.name.value_or("an unknown device"));
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"memory",
                 with_machines("Device memory against sequence length", machines),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
