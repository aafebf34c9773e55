// SPDX-License-Identifier: Apache-2.0
// What links carry at best, the roofline whose boundary is the link, and where the model says that time goes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/model/counts/roofline.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/ranks/rank_tables.hpp"
#include "analysis/report/sections/speed/roofline_figures.hpp"

namespace tilescope {
namespace {

/// One pass of ours on several GPUs as a roofline sees it.
struct LinkSubject {
  std::string schedule, pass;
  std::int64_t tokens_a_gpu = 0;
  double flops_per_second = 0;  // measured, of one GPU
  double intensity = 0;         // useful FLOP per byte that a GPU sends
};

struct LinkRoofs {
  double peak = 0, link = 0;
  double attainable(double intensity) const { return std::min(peak, intensity * link); }
};

std::optional<LinkRoofs> link_roofs(const DistributedRecord& record, ElementType dtype) {
  const std::optional<Machine> stated =
      record.machine ? machine_of_device(record.machine->name) : std::nullopt;
  if (!stated) return std::nullopt;
  const Machine machine = with_measured_ceilings(*stated);
  const std::optional<Ceiling> link = link_ceiling(machine);
  const std::vector<Ceiling> ceilings = ceilings_of(machine, dtype);
  const Ceiling* const peak = find(ceilings, CeilingKind::peak);
  if (!link || peak == nullptr) return std::nullopt;
  return LinkRoofs{peak->per_second, link->per_second};
}

/// From a record of measured times by the copy engine.
std::vector<LinkSubject> link_subjects(const DistributedRecord& record) {
  std::vector<LinkSubject> subjects;
  if (record.transport != "copy-engine") return subjects;
  for (const DistributedRun& run : record.runs) {
    for (const DistributedPass& pass : run.passes) {
      const GpuRecord* const busiest = pass.busiest();
      const double sent = busiest ? busiest->link.data.sent_bytes : 0;
      if (!pass.time_s || !pass.flops_per_second_a_gpu || sent <= 0) continue;
      subjects.push_back({run.schedule, pass.name, run.problem.seqlen_k / run.gpus,
                          *pass.flops_per_second_a_gpu, *pass.flops_per_second_a_gpu * *pass.time_s / sent});
    }
  }
  return subjects;
}

}  // namespace

Table link_ceiling_table(const std::vector<CeilingsRecord>& records) {
  Table table{
      "What the link between two GPUs carries at best in one direction, in GB/s: by the copy engine, and by "
      "loads and stores of so many CTAs of 512 threads; both ways: while the other GPU does the same.",
      {{"moved", true},
       {"CTAs", true},
       {"copy engine", true},
       {"SM loads", true},
       {"SM stores", true},
       {"both ways: copy engine", true},
       {"SM loads", true},
       {"SM stores", true}},
      {}};
  for (const CeilingsRecord& record : records) {
    std::map<std::pair<int, std::int64_t>, std::map<std::pair<bool, std::string>, double>> rates;
    for (const LinkCeiling& link : record.measured.links)
      rates[{link.ctas, link.bytes}][{link.both_ways, link.engine}] = link.per_second;
    if (rates.empty()) continue;
    table.rows.push_back({record.measured.device});
    for (const auto& [what, by_engine] : rates) {
      std::vector<std::string> row = {format_capacity(what.second),
                                      what.first == 0 ? "-" : std::to_string(what.first)};
      for (const bool both_ways : {false, true}) {
        for (const char* const engine : {kCopyEngine, kSmLoads, kSmStores}) {
          const auto rate = by_engine.find({both_ways, engine});
          row.push_back(rate == by_engine.end() ? "-" : fmt::format("{:.0f}", 1e-9 * rate->second));
        }
      }
      table.rows.push_back(row);
    }
  }
  return table;
}

Table link_roofline_table(const std::vector<DistributedRecord>& records) {
  Table table{
      "The roofline of a GPU whose boundary is its link: useful work per byte that it sends, what the link "
      "and the tensor cores allow, and what was reached. Right of the ridge the link can be hidden "
      "altogether.",
      {{"schedule"},
       {"pass"},
       {"tokens a GPU", true},
       {"FLOP per byte sent", true},
       {"the link allows", true},
       {"reached", true},
       {"of the lower roof", true}},
      {}};
  for (const DistributedRecord& record : records) {
    const std::vector<LinkSubject> subjects = link_subjects(record);
    if (subjects.empty()) continue;
    const auto roofs = link_roofs(record, record.runs.front().problem.dtype);
    if (!roofs) continue;
    table.rows.push_back(
        {fmt::format("{} GPUs, {}: peak {}/s, link {}/s, ridge at {:.0f} FLOP per byte",
                     record.runs.front().gpus, ranked_shape(record.runs.front().problem),
                     format_flops(roofs->peak), format_bytes(roofs->link), roofs->peak / roofs->link)});
    for (const LinkSubject& subject : subjects) {
      table.rows.push_back({subject.schedule, subject.pass, std::to_string(subject.tokens_a_gpu),
                            fmt::format("{:.0f}", subject.intensity),
                            format_flops(subject.intensity * roofs->link) + "/s",
                            format_flops(subject.flops_per_second) + "/s",
                            share_text(subject.flops_per_second / roofs->attainable(subject.intensity))});
    }
  }
  return table;
}

std::optional<Figure> link_roofline_figure(const std::vector<DistributedRecord>& records) {
  Figure figure{.name = "link-roofline",
                .title = "Roofline at the link between GPUs.",
                .caption =
                    "Each marker is a length; work per byte grows with it. Under the slanted roof the link "
                    "sets the pace even if all of it is hidden."};
  for (const DistributedRecord& record : records) {
    const std::vector<LinkSubject> subjects = link_subjects(record);
    if (subjects.empty()) continue;
    const auto roofs = link_roofs(record, record.runs.front().problem.dtype);
    if (!roofs) continue;
    std::map<std::pair<std::string, std::string>, LineSeries> lines;
    double most = 10 * roofs->peak / roofs->link;
    for (const LinkSubject& subject : subjects) {
      const bool forward = subject.pass == "forward";
      LineSeries& line = lines[{subject.schedule, subject.pass}];
      line.title = subject.schedule + ", " + subject.pass;
      line.look = look_of(subject.schedule);
      line.look.filled = forward;
      line.look.dash = forward ? Dash::solid : Dash::dashed;
      line.points.push_back({subject.intensity, subject.flops_per_second});
      most = std::max(most, 2 * subject.intensity);
    }
    const double ridge = roofs->peak / roofs->link, least = ridge / 10;
    LineChart chart;
    chart.series = {{"link and tensor cores",
                     {.color = Color::grey},
                     {{least, least * roofs->link}, {ridge, roofs->peak}, {most, roofs->peak}}}};
    for (auto& [key, line] : lines) chart.series.push_back(std::move(line));
    chart.x = byte_axis("Useful FLOP per byte that a GPU sends", chart.series, &ChartPoint::x);
    chart.x.format = [](double value) { return fmt::format("{:.0f} FLOP per byte", value); };
    chart.y = byte_axis("FLOP per second of a GPU", chart.series);
    chart.y.format = [](double value) { return format_flops(value) + "/s"; };
    for (auto& [text, value] : chart.x.ticks) text = fmt::format("{:.0f}", value);
    for (auto& [text, value] : chart.y.ticks) text = format_flops(value);
    figure.panels.push_back(
        {fmt::format("{} GPUs, {}", record.runs.front().gpus, ranked_shape(record.runs.front().problem)),
         draw(chart)});
  }
  if (figure.panels.empty()) return std::nullopt;
  return figure;
}

namespace {

/// A problem as GPUs share it: GPUs, shape, tokens a GPU, pass.
using SharedProblem = std::tuple<std::int64_t, std::string, std::int64_t, std::string>;

struct PredictedSchedule {
  const DistributedPass* pass = nullptr;
  std::optional<double> measured;  // efficiency, by the copy engine
};
using PredictedSchedules = std::map<SharedProblem, std::map<std::string, PredictedSchedule>>;

PredictedSchedules predicted_schedules(const std::vector<DistributedRecord>& records) {
  std::map<RankedPassKey, double> measured;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (pass.efficiency && record.transport == "copy-engine")
      measured[ranked_key(run, pass)] = *pass.efficiency;
  });
  PredictedSchedules found;
  for_each_ranked_pass(records, [&](const auto&, const auto& run, const auto& pass) {
    constexpr std::int64_t kMostGpus = 4;  // more are the scaling table's
    if (!pass.predicted || pass.predicted->lost_s.empty() || run.gpus > kMostGpus) return;
    const RankedPassKey key = ranked_key(run, pass);
    const SharedProblem problem{run.gpus, std::get<0>(key), std::get<2>(key), pass.name};
    const auto seen = measured.find(key);
    found[problem][run.schedule] = {
        &pass, seen == measured.end() ? std::nullopt : std::optional<double>(seen->second)};
  });
  return found;
}

/// Adds a line with the GPUs and the shape where they are other than those of the row before.
void add_title(Table& table, const SharedProblem& problem, std::string& title) {
  const std::string own = fmt::format("{} GPUs, {}", std::get<0>(problem), std::get<1>(problem));
  if (own != title) table.rows.push_back({title = own});
}

constexpr struct {
  const char *cause, *heading;
} kCauses[] = {{"tiles_s", "tiles"},        {"tails_s", "tails"},      {"sums_s", "sums"},
               {"launches_s", "launching"}, {"bytes_s", "link bytes"}, {"latency_s", "link start"},
               {"others_s", "others"}};

}  // namespace

Table predicted_schedules_table(const std::vector<DistributedRecord>& records) {
  const PredictedSchedules problems = predicted_schedules(records);
  std::set<std::string> schedules;
  for (const auto& [problem, of] : problems) {
    for (const auto& [schedule, predicted] : of) schedules.insert(schedule);
  }
  Table table{
      "Efficiency of each schedule as the model predicts it from the rate of one GPU (CTAs on SMs, sums, "
      "launches, links), and in brackets as measured. What a launch, a block and a sum cost was fitted to "
      "16/16 heads on 2 GPUs, and to nothing else here.",
      {{"tokens a GPU", true}, {"pass"}},
      {}};
  for (const std::string& schedule : schedules) table.columns.push_back({schedule, true});
  std::string title;
  for (const auto& [problem, of] : problems) {
    add_title(table, problem, title);
    std::vector<std::string> row = {std::to_string(std::get<2>(problem)), std::get<3>(problem)};
    for (const std::string& schedule : schedules) {
      const auto found = of.find(schedule);
      row.push_back(found == of.end() ? "-" : share_text(found->second.pass->predicted->efficiency));
      if (found != of.end() && found->second.measured)
        row.back() += fmt::format(" ({})", share_text(*found->second.measured));
    }
    table.rows.push_back(row);
  }
  return table;
}

Table lost_time_table(const std::vector<DistributedRecord>& records) {
  Table table{
      "Where the model says that the rest of the time goes, for the schedule with the highest predicted "
      "efficiency: tiles that are uneven, or cost more for being cut; SMs that are done while others compute "
      "(tails); merges, additions and roundings (sums); the start of kernels; bytes on the link, and the "
      "start of transfers, while nothing is computed; and waiting for other GPUs. Shares of the time beyond "
      "one GPU's own; below 0: less than its share.",
      {{"tokens a GPU", true}, {"pass"}, {"schedule"}, {"predicted", true}, {"measured", true}},
      {}};
  for (const auto& cause : kCauses) table.columns.push_back({cause.heading, true});
  std::string title;
  for (const auto& [problem, of] : predicted_schedules(records)) {
    const auto& [schedule, best] = *std::ranges::max_element(of, [](const auto& a, const auto& b) {
      return a.second.pass->predicted->efficiency < b.second.pass->predicted->efficiency;
    });
    add_title(table, problem, title);
    const PredictedTimes& predicted = *best.pass->predicted;
    std::vector<std::string> row = {std::to_string(std::get<2>(problem)), std::get<3>(problem), schedule,
                                    share_text(predicted.efficiency),
                                    best.measured ? share_text(*best.measured) : "-"};
    for (const auto& cause : kCauses) {
      const auto lost = predicted.lost_s.find(cause.cause);
      row.push_back(lost == predicted.lost_s.end() ? "-" : share_text(lost->second / predicted.time_s));
    }
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace tilescope
