// SPDX-License-Identifier: Apache-2.0
// What each schedule costs at 2, 4, ... GPUs over links of several rates, simulated.
#include <fmt/format.h>

#include <map>
#include <set>

#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/ranks/rank_tables.hpp"

namespace tilescope {
namespace {

/// One schedule on so many GPUs: its passes by link rate, the fastest link first.
struct ScalingPoint {
  const DistributedRun* run = nullptr;
  std::map<std::pair<double, std::string>, const DistributedPass*, std::greater<>> passes;
};
/// By shape and tokens of the problem, schedule and GPUs.
using ScalingPoints = std::map<std::pair<std::string, std::int64_t>,
                               std::map<std::pair<std::string, std::int64_t>, ScalingPoint>>;

/// Predictions of one problem at more than two numbers of GPUs.
ScalingPoints scaling_points(const std::vector<DistributedRecord>& records) {
  ScalingPoints points;
  for (const DistributedRecord& record : records) {
    if (!record.machine || !record.machine->link_bytes_per_second) continue;
    std::set<std::int64_t> gpus;
    for (const DistributedRun& run : record.runs) gpus.insert(run.gpus);
    if (gpus.size() < 3) continue;
    for (const DistributedRun& run : record.runs) {
      ScalingPoint& point =
          points[{ranked_shape(run.problem), run.problem.seqlen_k}][{run.schedule, run.gpus}];
      point.run = &run;
      for (const DistributedPass& pass : run.passes) {
        if (pass.predicted) point.passes[{*record.machine->link_bytes_per_second, pass.name}] = &pass;
      }
    }
  }
  return points;
}

std::set<double, std::greater<>> rates_of(
    const std::map<std::pair<std::string, std::int64_t>, ScalingPoint>& of) {
  std::set<double, std::greater<>> rates;
  for (const auto& [key, point] : of) {
    for (const auto& [rate_and_pass, pass] : point.passes) rates.insert(rate_and_pass.first);
  }
  return rates;
}

std::string problem_line(const std::pair<std::string, std::int64_t>& problem) {
  return fmt::format("{}, {} tokens in all", problem.first, format_length(problem.second));
}

const DistributedPass* pass_at(const ScalingPoint& point, double rate, const char* pass) {
  const auto found = point.passes.find({rate, pass});
  return found == point.passes.end() ? nullptr : found->second;
}

double predicted_memory_bytes(const GpuRecord& gpu) {
  return static_cast<double>(gpu.operand_bytes.value_or(0) + gpu.received_buffer_bytes.value_or(0) +
                             gpu.state_bytes.value_or(0));
}

}  // namespace

Table scaling_table(const std::vector<DistributedRecord>& records) {
  const ScalingPoints points = scaling_points(records);
  std::set<double, std::greater<>> rates;
  for (const auto& [problem, of] : points) rates.merge(rates_of(of));
  Table table{
      "What schedules would cost at more GPUs, simulated: the share of so many GPUs without links, over "
      "links of several rates a GPU (one direction). Bytes and memory are those of the forward pass, of the "
      "GPU that sends most.",
      {{"schedule"}, {"GPUs", true}, {"tokens a GPU", true}, {"sends", true}, {"memory", true}},
      {}};
  for (const double rate : rates) {
    for (const char* const pass : {"forward", "backward"})
      table.columns.push_back({fmt::format("{}, {}/s", pass, format_bytes(rate)), true});
  }
  for (const auto& [problem, of] : points) {
    table.rows.push_back({problem_line(problem)});
    for (const auto& [key, point] : of) {
      const DistributedPass* forward = nullptr;
      for (const double rate : rates) forward = forward ? forward : pass_at(point, rate, "forward");
      const GpuRecord* const busiest = forward ? forward->busiest() : nullptr;
      std::vector<std::string> row = {
          key.first, std::to_string(key.second), std::to_string(problem.second / key.second),
          busiest ? format_bytes(busiest->link.data.sent_bytes) : "-",
          busiest && busiest->operand_bytes ? format_bytes(predicted_memory_bytes(*busiest)) : "-"};
      for (const double rate : rates) {
        for (const char* const name : {"forward", "backward"}) {
          const DistributedPass* const pass = pass_at(point, rate, name);
          row.push_back(pass ? share_text(pass->predicted->efficiency) : "-");
        }
      }
      table.rows.push_back(row);
    }
  }
  return table;
}

std::optional<Figure> scaling_figure(const std::vector<DistributedRecord>& records) {
  Figure figure{.name = "gpus-efficiency",
                .title = "Schedules at more GPUs, simulated.",
                .caption = "Forward pass; the share of so many GPUs without links."};
  for (const auto& [problem, of] : scaling_points(records)) {
    std::set<std::int64_t> marks;
    for (const auto& [key, point] : of) marks.insert(key.second);
    for (const double rate : rates_of(of)) {
      std::map<std::string, LineSeries> lines;
      for (const auto& [key, point] : of) {
        const DistributedPass* const pass = pass_at(point, rate, "forward");
        if (pass != nullptr)
          lines[key.first].points.push_back(
              {static_cast<double>(key.second), 100 * pass->predicted->efficiency});
      }
      LineChart chart;
      FigureLooks looks;
      for (auto& [schedule, line] : lines) {
        line.title = line.label = schedule;
        line.look = looks.take(schedule);
        chart.series.push_back(line);
      }
      chart.x = doubling_axis("GPUs", {marks.begin(), marks.end()},
                              [](std::int64_t gpus) { return std::to_string(gpus); });
      chart.y = {"Share of GPUs without links (%)", {}, 0, 105, false, [](double value) {
                   return fmt::format("{:.1f} %", value);
                 }};
      for (const int tick : {0, 20, 40, 60, 80, 100})
        chart.y.ticks.emplace_back(std::to_string(tick), static_cast<double>(tick));
      figure.panels.push_back(
          {fmt::format("{}, {}/s a GPU", problem_line(problem), format_bytes(rate)), draw(chart, false)});
      figure.legend = draw_legend(chart.series);
    }
  }
  if (figure.panels.empty()) return std::nullopt;
  return figure;
}

}  // namespace tilescope
