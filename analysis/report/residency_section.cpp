// SPDX-License-Identifier: Apache-2.0
// What an L2 keeps of a footprint, by the way in which it is touched, from `ceilings`.
#include <fmt/format.h>

#include <map>

#include "analysis/report/chart_looks.hpp"
#include "analysis/report/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

constexpr double kMebi = 1 << 20;

constexpr struct {
  const char* access;
  Look look;
} kLooks[] = {{kReadByAll, {.color = "#0b62a4", .marker = Marker::circle}},
              {kReadByOne, {.color = "#c8640a", .marker = Marker::square}},
              {kReducedByOne, {.color = "#3c8d40", .marker = Marker::triangle}}};

Figure residency_figure(const CeilingsRecord& record) {
  LineChart chart;
  double largest = 0;
  for (const auto& [access, look] : kLooks) {
    LineSeries series{access, look, {}};
    for (const L2Residency& point : record.measured.l2) {
      if (point.access != access) continue;
      series.points.push_back({static_cast<double>(point.footprint_bytes) / kMebi, 100 * point.kept});
      largest = std::max(largest, series.points.back().x);
    }
    chart.series.push_back(std::move(series));
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  chart.x = {"footprint [MiB]", linear_ticks(largest, number), 0, largest, false};
  chart.y = {"found in L2 by the next pass [%]", linear_ticks(100, number), 0, 105, false};
  Figure figure;
  figure.name = "l2-residency";
  figure.title = fmt::format("What the L2 of an {} keeps.", record.measured.device);
  figure.caption = fmt::format(
      "A kernel goes over a footprint several times; DRAM reads are counted. The driver says {}. What all "
      "SMs "
      "read stays in both parts of the L2, and so in half of the room.",
      format_capacity(record.measured.l2_bytes));
  figure.commands = {command_text(record.argv)};
  figure.svg = draw(chart);
  return figure;
}

Table residency_table(const CeilingsRecord& record) {
  Table table{"", {{"touched"}, {"half is kept of", true}, {"of the L2", true}}, {}};
  for (const auto& [access, look] : kLooks) {
    const std::int64_t bytes = half_kept_bytes(record.measured.l2, access);
    table.rows.push_back({access, format_capacity(bytes),
                          fmt::format("{:.1f} %", 100.0 * static_cast<double>(bytes) /
                                                      static_cast<double>(record.measured.l2_bytes))});
  }
  return table;
}

}  // namespace

std::optional<Section> residency_section(const std::vector<CeilingsRecord>& records) {
  for (const CeilingsRecord& record : records) {
    if (record.measured.l2.empty()) continue;
    return Section{"residency", "What the L2 keeps", {residency_figure(record), residency_table(record)}};
  }
  return std::nullopt;
}

}  // namespace tilescope
