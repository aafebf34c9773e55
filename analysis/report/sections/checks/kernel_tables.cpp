// SPDX-License-Identifier: Apache-2.0
// What `profile -- COMMAND` measured of somebody's kernels.
#include <fmt/format.h>

#include <array>

#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr std::array<const char*, 4> kTrafficMetrics = {"sm_l2_read_bytes", "sm_l2_write_bytes",
                                                        "dram_read_bytes", "dram_write_bytes"};

std::string extent_text(const std::array<std::int64_t, 3>& extent) {
  return fmt::format("{}", fmt::join(extent, "x"));
}

Table kernel_table(const KernelRecord& record) {
  Table table{"Bytes are means over the launches.",
              {{"kernel"},
               {"launches", true},
               {"grid"},
               {"block"},
               {"registers", true},
               {"SM<->L2 read", true},
               {"SM<->L2 written", true},
               {"DRAM read", true},
               {"DRAM written", true},
               {"median", true}},
              {}};
  for (const KernelGroup& group : group_launches(record.kernels)) {
    const LaunchFacts& launch = group.launch;
    std::vector<std::string> row = {fmt::format("`{}`", short_kernel_name(group.name)),
                                    std::to_string(group.launches), extent_text(launch.grid),
                                    extent_text(launch.block),
                                    launch.registers ? std::to_string(*launch.registers) : "-"};
    for (const char* metric : kTrafficMetrics) row.push_back(mean_bytes_text(group, metric));
    const auto seconds = median_seconds(record.kernels, group);
    row.push_back(seconds ? format_seconds(*seconds) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> kernel_section(const std::vector<KernelRecord>& records) {
  if (records.empty()) return std::nullopt;
  Section section{"kernels", "Kernels of other commands", {}};
  for (const KernelRecord& record : records) {
    section.blocks.push_back(CommandLines{{command_text(record.argv)}});
    std::string facts;
    for (const CollectionFacts& collection : record.collections) {
      facts += fmt::format("{} ({}). ", collection.device, collection.chip);
    }
    if (!record.complete)
      facts += "**Not complete**: the record holds what was measured until the command ended.";
    if (!facts.empty()) section.blocks.push_back(Paragraph{facts});
    if (!record.messages.empty()) section.blocks.push_back(Bullets{record.messages});
    section.blocks.push_back(kernel_table(record));
  }
  return section;
}

}  // namespace tilescope
