// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/bytes/dram_growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/lower_bounds.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Least squares of y over 1, x and max(0, x - bend).
/// @return the sum of squares that is left, and the slopes before and after
struct Bent {
  double left = HUGE_VAL, below = 0, above = 0;
};
Bent fit_bent_at(std::span<const std::pair<double, double>> points, double bend) {
  double m[3][4] = {};
  for (const auto& [x, y] : points) {
    const double terms[3] = {1, x, std::max(0.0, x - bend)};
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) m[i][j] += terms[i] * terms[j];
      m[i][3] += terms[i] * y;
    }
  }
  for (int i = 0; i < 3; ++i) {
    for (int row = 0; row < 3; ++row) {
      if (row == i) continue;
      const double factor = m[row][i] / m[i][i];
      for (int j = i; j < 4; ++j) m[row][j] -= factor * m[i][j];
    }
  }
  const double offset = m[0][3] / m[0][0], slope = m[1][3] / m[1][1], more = m[2][3] / m[2][2];
  Bent bent{0, slope, slope + more};
  for (const auto& [x, y] : points) {
    const double off = y - offset - slope * x - more * std::max(0.0, x - bend);
    bent.left += off * off;
  }
  return bent;
}

double bytes_of_head(const RunSummary& run, std::int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(run.problem().batch * run.problem().heads);
}

/// Least and largest of the launches of a direction that is one pass.
std::optional<std::array<double, 2>> launch_range(const RunSummary& run) {
  if (run.passes.size() != 1 || !run.passes.front()->measured->dram_read_range) return std::nullopt;
  const auto& [least, largest] = *run.passes.front()->measured->dram_read_range;
  return std::array{bytes_of_head(run, least), bytes_of_head(run, largest)};
}

/// The pass that computes most.
const PassRecord& main_pass(const RunSummary& run) {
  return **std::ranges::max_element(run.passes, {},
                                    [](const PassRecord* pass) { return pass->executed_flops; });
}

/// Bytes of a head, a row of the axis that is streamed: K and V, or Q and dO and the sums of dQ in fp32.
double streamed_bytes(const RunSummary& run) {
  const double d = static_cast<double>(run.problem().head_dim), width = element_bytes(run.problem().dtype);
  constexpr double kSumBytes = 4;
  return run.direction == Direction::forward ? 2 * d * width : 2 * d * width + kSumBytes * d;
}

DramSweep dram_sweep_of(const std::vector<const RunSummary*>& runs) {
  DramSweep sweep;
  sweep.last = runs.back();
  for (const RunSummary* run : runs) {
    const double seqlen = static_cast<double>(run->problem().seqlen_q);
    if (!sweep.points.empty() && sweep.points.back().seqlen == seqlen) continue;  // another record's
    DramPoint point{seqlen, bytes_of_head(*run, run->measured_dram->read_bytes), {}, launch_range(*run)};
    if (run->simulated_dram) point.simulated = bytes_of_head(*run, run->simulated_dram->read_bytes);
    sweep.points.push_back(point);
  }
  const PassRecord& pass = main_pass(*sweep.last);
  const bool owns_queries = sweep.last->direction == Direction::forward;
  if (pass.simulated) {
    sweep.rows_in_flight = static_cast<double>(pass.simulated->co_resident_ctas) *
                           (owns_queries ? pass.tile.block_m : pass.tile.block_n);
  }
  const auto machine = machine_of_device(sweep.last->record->machine.name.value_or(""));
  if (machine) {
    constexpr double kCopies = 2;  // what SMs of both sides read stands in both partitions
    const double copies = machine->split_l2() ? kCopies : 1;
    sweep.fills_l2_at = static_cast<double>(machine->l2_bytes.value) / copies / streamed_bytes(*sweep.last);
    const double elements = static_cast<double>(chip_memory(*machine).bytes_per_processor) /
                            element_bytes(sweep.last->problem().dtype);
    sweep.chip_elements = elements;
    sweep.within_hypotheses =
        elements <= sweep.points.back().seqlen * static_cast<double>(sweep.last->problem().head_dim);
  }
  return sweep;
}

bool has_both_counters(const RunSummary* run) { return run->measured_dram && run->measured_sm_l2; }

}  // namespace

std::optional<BrokenLine> fit_broken_line(std::span<const std::pair<double, double>> points) {
  if (points.size() < 5) return std::nullopt;
  std::vector<std::pair<double, double>> logs;
  for (const auto& [x, y] : points) logs.emplace_back(std::log(x), std::log(y));
  const double first = logs[1].first, last = logs[logs.size() - 2].first;
  constexpr int kPlaces = 200;
  Bent best;
  double at = first;
  for (int i = 0; i <= kPlaces; ++i) {
    const double bend = first + (last - first) * i / kPlaces;
    const Bent bent = fit_bent_at(logs, bend);
    if (bent.left < best.left) {
      best = bent;
      at = bend;
    }
  }
  return BrokenLine{best.below, best.above, std::exp(at)};
}

std::vector<double> DramSweep::local_exponents(bool simulated) const {
  std::vector<double> exponents;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const double rise = std::log(points[i].seqlen / points[i - 1].seqlen);
    if (simulated && !(points[i].simulated && points[i - 1].simulated)) return {};
    exponents.push_back((simulated ? std::log(*points[i].simulated / *points[i - 1].simulated)
                                   : std::log(points[i].measured / points[i - 1].measured)) /
                        rise);
  }
  return exponents;
}

std::string DramSweep::local_text() const {
  std::string text;
  const std::vector<double> exponents = local_exponents(false);
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    text += fmt::format("{}{:.2f}", text.empty() ? "" : ", ", exponents[i]);
    const auto &before = points[i].range, &after = points[i + 1].range;
    if (!before || !after) continue;
    const double rise = std::log(points[i + 1].seqlen / points[i].seqlen);
    text += fmt::format(" ({:.2f} ... {:.2f})", std::log((*after)[0] / (*before)[1]) / rise,
                        std::log((*after)[1] / (*before)[0]) / rise);
  }
  return text;
}

std::vector<DramSweep> dram_sweeps(const std::vector<RunSummary>& runs) {
  constexpr std::int64_t kLong = 65536;
  constexpr std::size_t kFewest = 3;
  std::vector<std::vector<const RunSummary*>> found;
  for (std::vector<const RunSummary*> points : token_sweeps(runs)) found.push_back(std::move(points));
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    for (const SweepSeries& series : sweep.series) found.push_back(series.points);
  }
  std::vector<DramSweep> sweeps;
  for (std::vector<const RunSummary*>& points : found) {
    std::erase_if(points, [](const RunSummary* run) { return !has_both_counters(run); });
    if (points.size() < kFewest || points.back()->problem().seqlen_q < kLong) continue;
    DramSweep sweep = dram_sweep_of(points);
    if (sweep.points.size() >= kFewest) sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

namespace {

std::string kilo_rows(double length) {
  return length > 0 ? fmt::format("{:.0f}K", length / 1024) : std::string("-");
}

std::vector<std::string> dram_growth_row(const DramSweep& sweep) {
  std::vector<std::pair<double, double>> points;
  for (const DramPoint& point : sweep.points) points.emplace_back(point.seqlen, point.measured);
  const auto line = fit_broken_line(points);
  std::string simulated;
  for (const double exponent : sweep.local_exponents(true))
    simulated += fmt::format("{}{:.2f}", simulated.empty() ? "" : ", ", exponent);
  return {
      sweep.last->label,
      std::string(to_string(sweep.last->direction)),
      problem_text(*sweep.last, false),
      fmt::format("{} ... {}", format_length(std::llround(sweep.points.front().seqlen)),
                  format_length(std::llround(sweep.points.back().seqlen))),
      sweep.local_text(),
      simulated.empty() ? "-" : simulated,
      line ? fmt::format("{:.2f}, from {} on {:.2f}", line->below, kilo_rows(line->at), line->above) : "-",
      kilo_rows(sweep.rows_in_flight),
      kilo_rows(sweep.fills_l2_at)};
}

}  // namespace

void add_dram_growth(Section& section, const std::vector<RunSummary>& runs,
                     std::vector<std::string>& commands) {
  const std::vector<DramSweep> sweeps = dram_sweeps(runs);
  if (sweeps.empty()) return;
  const auto within = std::ranges::count_if(sweeps, &DramSweep::within_hypotheses);
  Table table{
      fmt::format(
          "Local exponents of N in a head's DRAM reads, from each length to the next (in brackets with what "
          "its launches leave open), simulated, and of two lines that meet, where there are five lengths. "
          "They turn from 1 to 2 once what CTAs stream together leaves the L2: each block of rows in flight "
          "reads it again. Rows in flight: those of all CTAs that run at once. One head fills the L2 where "
          "its K and V, kept beside both partitions, do; backward Q, dO and the fp32 sums of dQ, which are "
          "twice as much, and whose sums are only added to, take less room than what is read. "
          "FlashAttention's "
          "Theorem 2 asks for M <= N d, with M the L2 and all that SMs hold: {} of these {} sweeps {} a "
          "length "
          "that meets it, so that for DRAM it is not tested here.",
          within, sweeps.size(), within == 1 ? "has" : "have"),
      {{"kernel"},
       {"pass"},
       {"problem"},
       {"N"},
       {"local exponents"},
       {"simulated"},
       {"two lines"},
       {"rows in flight", true},
       {"one head fills the L2 at", true}},
      {}};
  for (const DramSweep& sweep : sweeps) {
    table.rows.push_back(dram_growth_row(sweep));
    add_command(commands, *sweep.last->record);
  }
  section.blocks.push_back(std::move(table));
}

}  // namespace tilescope
