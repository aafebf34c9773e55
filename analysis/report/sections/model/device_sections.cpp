// SPDX-License-Identifier: Apache-2.0
// What was measured of the device itself: what its L2 keeps, by access, how SMs stand round its partitions,
// what it reads from DRAM meanwhile, and how unevenly the CTAs of an SM proceed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kMebi = 1 << 20;

constexpr struct {
  const char* access;
  Look look;
} kLooks[] = {{kReadByAll, {.color = Color::teal, .marker = Marker::circle}},
              {kReadByOne, {.color = Color::brown, .marker = Marker::square}},
              {kReducedByOne, {.color = Color::olive, .marker = Marker::triangle}},
              {kReadByPartition, {.color = Color::dark, .marker = Marker::diamond, .dash = Dash::dashed}},
              {kReadRandom, {.color = Color::amber, .marker = Marker::triangle_down, .dash = Dash::dashed}}};

bool has(const CeilingsRecord& record, const std::string& access) {
  return std::ranges::any_of(record.measured.l2,
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
      "SMs read stays in both partitions of the L2 and so takes twice the space.",
      format_capacity(record.measured.l2_bytes));
  if (has(record, kReadByPartition)) {
    figure.caption +=
        " What the SMs beside one partition read fills that partition, and also the other one with the half "
        "of the lines whose home is there: one half is lost beyond the size of one partition, the other half "
        "beyond the size of both.";
  }
  if (has(record, kReadRandom)) {
    figure.caption += " Pieces at random places fill the sets of the L2 unevenly and are lost gradually.";
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

namespace {

/// From run to run of the same pass, which differ in length, mask or heads.
struct Range {
  double least = 0, largest = 0;
  void add(double value) {
    least = least == 0 ? value : std::min(least, value);
    largest = std::max(largest, value);
  }
  std::string text(int digits) const {
    if (largest == 0) return "";
    const std::string from = fmt::format("{:.{}f}", least, digits),
                      to = fmt::format("{:.{}f}", largest, digits);
    return from == to ? from : fmt::format("{} ... {}", from, to);
  }
};

struct ProgressRanges {
  int runs = 0, ctas_per_sm = 0;
  Range step_cycles, younger_rate, alone_rate, step_cv, tpc_cv, clock_cv;
};

}  // namespace

std::optional<Section> progress_section(const std::vector<RunRecord>& records) {
  using Key = std::tuple<std::string, std::string, std::string, std::int64_t, std::string>;
  std::map<Key, ProgressRanges> by_pass;
  std::vector<std::string> commands, machines;
  for (const RunRecord& record : records) {
    for (const RunEntry& run : record.runs) {
      for (const PassRecord& pass : run.passes) {
        if (!pass.progress) continue;
        ProgressRanges& ranges = by_pass[{run.kernel, pass.name, std::string(to_string(run.problem.dtype)),
                                          run.problem.head_dim, to_string(pass.tile)}];
        ++ranges.runs;
        ranges.ctas_per_sm = pass.progress->ctas_per_sm;
        // A rate of 0 was not measured; 1: no CTA was ever younger, or alone.
        const bool steps_noted = pass.progress->step_cycles > 0;
        if (steps_noted) ranges.step_cycles.add(pass.progress->step_cycles);
        if (steps_noted && pass.progress->ctas_per_sm > 1)
          ranges.younger_rate.add(pass.progress->rates.younger_rate);
        if (pass.progress->rates.alone_rate != 1) ranges.alone_rate.add(pass.progress->rates.alone_rate);
        if (pass.progress->rates.step_cv > 0) ranges.step_cv.add(100 * pass.progress->rates.step_cv);
        if (pass.progress->rates.tpc_cv > 0) ranges.tpc_cv.add(100 * pass.progress->rates.tpc_cv);
        if (pass.progress->rates.clock_cv > 0) ranges.clock_cv.add(100 * pass.progress->rates.clock_cv);
        add_command(commands, record);
        add_new(machines, record.machine.name.value_or("an unknown device"));
      }
    }
  }
  if (by_pass.empty()) return std::nullopt;
  Table table{
      "An SM favours its oldest CTA (oldest-first arbitration). Younger's rate: steps of a younger CTA while "
      "the oldest one makes one, on a full SM. Rate alone: steps of a CTA that has its SM to itself, in the "
      "same time. A range spans several lengths and masks. The last columns are coefficients of variation: "
      "of the time of one step; of the time that TPCs of two SMs take for the same work, in kernels that "
      "note no steps; and of the SM clocks over a pass, because each GPC has a clock of its own. CTAs that "
      "began together therefore drift apart, and those that run ahead fetch what may have left the L2 when "
      "the others need it. Steps and rates come from a build with -D TILESCOPE_STEP_CLOCK=ON, TPCs from one "
      "without.",
      {{"kernel"},
       {"pass"},
       {"type"},
       {"d", true},
       {"tile"},
       {"runs", true},
       {"step, cycles", true},
       {"CTAs an SM", true},
       {"younger's rate", true},
       {"rate alone", true},
       {"steps, CV %", true},
       {"TPCs, CV %", true},
       {"clocks, CV %", true}},
      {}};
  for (const auto& [key, ranges] : by_pass) {
    const auto& [kernel, pass, type, head_dim, tile] = key;
    table.rows.push_back({kernel, pass, type, std::to_string(head_dim), tile, std::to_string(ranges.runs),
                          ranges.step_cycles.text(0), std::to_string(ranges.ctas_per_sm),
                          ranges.younger_rate.text(3), ranges.alone_rate.text(2), ranges.step_cv.text(1),
                          ranges.tpc_cv.text(3), ranges.clock_cv.text(3)});
  }
  return Section{"progress",
                 with_machines("How unevenly CTAs proceed", machines),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
