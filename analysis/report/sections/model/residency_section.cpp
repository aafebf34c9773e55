// SPDX-License-Identifier: Apache-2.0
// What an L2 keeps of a footprint, by the way in which it is touched, how SMs stand round its partitions, and
// what is read from DRAM meanwhile, from `ceilings`.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

constexpr double kMebi = 1 << 20;

constexpr struct {
  const char* access;
  Look look;
} kLooks[] = {{kReadByAll, {.color = Color::blue, .marker = Marker::circle}},
              {kReadByOne, {.color = Color::vermilion, .marker = Marker::square}},
              {kReducedByOne, {.color = Color::green, .marker = Marker::triangle}},
              {kReadByPartition, {.color = Color::purple, .marker = Marker::diamond, .dash = Dash::dashed}},
              {kReadRandom, {.color = Color::amber, .marker = Marker::triangle_down, .dash = Dash::dashed}}};

bool has(const CeilingsRecord& record, const std::string& access) {
  return std::any_of(record.measured.l2.begin(), record.measured.l2.end(),
                     [&](const L2Residency& point) { return point.access == access; });
}

Figure residency_figure(const CeilingsRecord& record) {
  LineChart chart;
  double largest = 0;
  for (const auto& [access, look] : kLooks) {
    if (!has(record, access)) continue;
    LineSeries series{access, look, {}};
    for (const L2Residency& point : record.measured.l2) {
      if (point.access != access) continue;
      series.points.push_back({static_cast<double>(point.footprint_bytes) / kMebi, 100 * point.kept});
      largest = std::max(largest, series.points.back().x);
    }
    chart.series.push_back(std::move(series));
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  chart.x = {"footprint [MiB]", linear_ticks(largest, number), 0, largest, false, [](double value) {
               return fmt::format("{:g} MiB", value);
             }};
  chart.y = {"found in L2 by the next pass [%]", linear_ticks(100, number), 0, 105, false, [](double value) {
               return fmt::format("{:.1f} %", value);
             }};
  Figure figure;
  figure.name = "l2-residency";
  figure.title = fmt::format("What the L2 of an {} keeps.", record.measured.device);
  figure.caption = fmt::format(
      "A kernel goes over a footprint several times; DRAM reads are counted. The driver says {}. What all "
      "SMs read stays in both partitions of the L2, and so in half of the room.",
      format_capacity(record.measured.l2_bytes));
  if (has(record, kReadByPartition)) {
    figure.caption +=
        " What the SMs beside one partition read fills that partition, and the other one with the half of "
        "the lines that has its home there: one half is lost past the size of a partition, the other past "
        "that of both.";
  }
  if (has(record, kReadRandom)) {
    figure.caption +=
        " Pieces from places of chance fill the sets of the L2 unevenly, and are lost by degrees.";
  }
  figure.commands = {command_text(record.argv)};
  figure.panels = {{"", draw(chart)}};
  return figure;
}

Table residency_table(const CeilingsRecord& record) {
  // Records without these accesses step over the onset too coarsely to tell where it begins and ends.
  const bool fine = has(record, kReadByPartition) || has(record, kReadRandom);
  Table table{"", {{"touched"}}, {}};
  if (fine) table.columns.push_back({"90 % are kept of", true});
  table.columns.push_back({"half is kept of", true});
  if (fine) table.columns.push_back({"10 % are kept of", true});
  table.columns.push_back({fine ? "half, of the L2" : "of the L2", true});
  for (const auto& [access, look] : kLooks) {
    if (!has(record, access)) continue;
    const auto kept = [&, &access = access](double share) {
      const std::int64_t bytes = kept_bytes(record.measured.l2, access, share);
      return bytes > 0 || !fine ? format_capacity(bytes) : "-";
    };
    std::vector<std::string> row = {access};
    if (fine) row.push_back(kept(0.9));
    row.push_back(kept(0.5));
    if (fine) row.push_back(kept(0.1));
    row.push_back(
        fmt::format("{:.1f} %", 100.0 * static_cast<double>(half_kept_bytes(record.measured.l2, access)) /
                                    static_cast<double>(record.measured.l2_bytes)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table partitions_table(const CeilingsRecord& record) {
  const L2Partitions& partitions = record.measured.l2_partitions;
  const std::vector<int> sms = sms_of_partitions(partitions);
  Table table{"", {{"CTAs of the launch", true}, {"SMs", true}, {"beside partition", true}}, {}};
  if (sms.size() == 1) {
    table.caption = "Latencies of atomics tell no partitions of the L2 apart.";
  } else {
    table.caption = "Latencies of atomics tell the partitions of the L2 apart:";
    for (std::size_t partition = 0; partition < sms.size(); ++partition) {
      table.caption += fmt::format("{} {} SMs stand beside partition {}", partition > 0 ? "," : "",
                                   sms[partition], partition);
    }
    table.caption +=
        ". A grid of one CTA an SM fills the rows in this order; which of those behind the first comes first "
        "changes from launch to launch.";
  }
  int first = 0;
  for (const SmGroup& group : partitions.groups) {
    table.rows.push_back({fmt::format("{} ... {}", first, first + group.sms - 1), std::to_string(group.sms),
                          std::to_string(group.partition)});
    first += group.sms;
  }
  return table;
}

/// A column a load; of a device asleep, all that older records know, the rate instead.
Table noise_floor_table(const CeilingsRecord& record) {
  if (noise_floor_loads(record.measured.noise_floor).size() > 1) {
    const std::vector<std::vector<std::string>> rows = noise_floor_rows(record.measured.noise_floor);
    Table table{
        "The noise floor: what the device reads from DRAM by itself, and so is counted with any kernel, by "
        "what runs meanwhile: a kernel of one warp that sleeps, one that multiplies and adds on all SMs, or "
        "one of a few CTAs that read and write two fifths of the L2 again and again. Reads that fetch these "
        "two fifths once are not among them; what others read displaces some, which are read again.",
        {},
        {rows.begin() + 1, rows.end()}};
    for (const std::string& header : rows.front()) table.columns.push_back({header, true});
    return table;
  }
  Table table{
      "The noise floor: what is read from DRAM while a kernel of one warp sleeps, and so is counted with any "
      "kernel.",
      {{"asleep for", true}, {"DRAM read", true}, {"each second", true}},
      {}};
  for (const NoiseFloor& reads : record.measured.noise_floor) {
    const auto bytes = static_cast<double>(reads.dram_read_bytes);
    table.rows.push_back(
        {format_seconds(reads.seconds), format_bytes(bytes), format_bytes(bytes / reads.seconds)});
  }
  return table;
}

}  // namespace

std::optional<Section> residency_section(const std::vector<CeilingsRecord>& records) {
  for (const CeilingsRecord& record : records) {
    const Ceilings& measured = record.measured;
    Section section{"residency", with_machines("What the L2 keeps", std::vector{measured.device}), {}};
    if (!measured.l2.empty()) section.blocks = {residency_figure(record), residency_table(record)};
    if (!measured.l2_partitions.groups.empty()) section.blocks.push_back(partitions_table(record));
    if (!measured.noise_floor.empty()) section.blocks.push_back(noise_floor_table(record));
    if (!section.blocks.empty()) return section;
  }
  return std::nullopt;
}

}  // namespace tilescope
