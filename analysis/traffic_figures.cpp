// SPDX-License-Identifier: Apache-2.0
// Bytes against sequence length, block size and L2 size.
#include <fmt/format.h>

#include "analysis/chart_looks.hpp"
#include "analysis/report_sections.hpp"
#include "analysis/sweep.hpp"

namespace tilescope {
namespace {

using BytesOf = std::optional<ReadWriteBytes> RunSummary::*;

/// The total at a boundary of each point that knows it.
std::vector<ChartPoint> totals(const SweepSeries& series, BytesOf boundary,
                               std::int64_t (*x)(const RunSummary&)) {
  std::vector<ChartPoint> points;
  for (const RunSummary* run : series.points) {
    const std::optional<ReadWriteBytes>& bytes = run->*boundary;
    if (bytes && bytes->total() > 0) {
      points.push_back({static_cast<double>(x(*run)), static_cast<double>(bytes->total())});
    }
  }
  return points;
}

std::int64_t seqlen_of(const RunSummary& run) { return run.problem().seqlen_q; }
std::int64_t block_of(const RunSummary& run) { return swept_block(run); }

std::string block_text(std::int64_t rows) { return std::to_string(rows); }

/// The tile after the label where the series of a sweep differ in it.
std::string series_title(const Sweep& sweep, const SweepSeries& series) {
  const auto same_label = [&series](const SweepSeries& other) { return other.label == series.label; };
  const bool ambiguous = std::count_if(sweep.series.begin(), sweep.series.end(), same_label) > 1;
  return ambiguous ? series.label + " " + to_string(series.tile) : series.label;
}

/// Lines of every kernel at every boundary that the records know, over `x`.
std::vector<LineSeries> boundary_lines(const Sweep& sweep, std::int64_t (*x)(const RunSummary&)) {
  std::vector<LineSeries> lines;
  std::vector<Look> looks;
  KernelLooks palette;
  for (const SweepSeries& series : sweep.series) {
    const RunSummary& run = *series.points.front();
    looks.push_back(palette.take(run.algorithm));
  }
  const auto add = [&](const char* boundary, BytesOf bytes, bool dram, bool measured) {
    for (std::size_t i = 0; i < sweep.series.size(); ++i) {
      LineSeries line{fmt::format("{}, {}", series_title(sweep, sweep.series[i]), boundary),
                      dram ? at_dram(looks[i]) : looks[i], totals(sweep.series[i], bytes, x)};
      if (measured) {
        line.look.marker = dram ? Marker::cross : Marker::plus;
        line.look.width = 0;
      }
      if (!line.points.empty()) lines.push_back(std::move(line));
    }
  };
  add("SM<->L2", &RunSummary::closed_form, false, false);
  add("SM<->L2 measured", &RunSummary::measured_sm_l2, false, true);
  add("DRAM simulated", &RunSummary::simulated_dram, true, false);
  add("DRAM measured", &RunSummary::measured_dram, true, true);
  return lines;
}

/// The compulsory floor over the x of the series that reaches furthest.
LineSeries floor_line(const Sweep& sweep, std::int64_t (*x)(const RunSummary&)) {
  LineSeries line{"compulsory", kFloorLook, {}};
  const auto longest = std::max_element(
      sweep.series.begin(), sweep.series.end(),
      [](const SweepSeries& a, const SweepSeries& b) { return a.points.size() < b.points.size(); });
  for (const RunSummary* run : longest->points) {
    line.points.push_back({static_cast<double>(x(*run)), static_cast<double>(run->compulsory.total())});
  }
  return line;
}

std::vector<std::int64_t> values_of(const Sweep& sweep, std::int64_t (*x)(const RunSummary&)) {
  std::vector<std::int64_t> values;
  for (const SweepSeries& series : sweep.series) {
    for (const RunSummary* run : series.points) values.push_back(x(*run));
  }
  return values;
}

/// The point of the first series of an algorithm at x, or null.
const RunSummary* point_at(const Sweep& sweep, Algorithm algorithm, std::int64_t x,
                           std::int64_t (*x_of)(const RunSummary&)) {
  for (const SweepSeries& series : sweep.series) {
    for (const RunSummary* run : series.points) {
      if (run->algorithm == algorithm && x_of(*run) == x) return run;
    }
  }
  return nullptr;
}

std::string direction_suffix(const Sweep& sweep) { return fmt::format("{}", to_string(sweep.direction)); }

}  // namespace

std::optional<Section> seqlen_section(const std::vector<RunSummary>& runs) {
  Section section{"seqlen", "Bytes against sequence length", {}};
  int number = 0;
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    std::vector<LineSeries> lines = boundary_lines(sweep, seqlen_of);
    if (lines.empty()) continue;
    lines.push_back(floor_line(sweep, seqlen_of));
    const std::vector<std::int64_t> values = values_of(sweep, seqlen_of);
    LineChart chart{doubling_axis("Sequence length N (tokens)", values, format_length),
                    byte_axis("Bytes read and written", lines), lines};
    const std::int64_t longest = *std::max_element(values.begin(), values.end());
    std::string caption = fmt::format(
        "{}. Solid with filled markers: SM<->L2, closed form. Dashed with open markers: DRAM, simulated.",
        describe_fixed(sweep, false));
    const RunSummary* standard = point_at(sweep, Algorithm::standard, longest, seqlen_of);
    const RunSummary* flash = point_at(sweep, Algorithm::flash2, longest, seqlen_of);
    if (standard && flash && standard->closed_form && flash->closed_form) {
      caption += fmt::format(" Both grow as N² at SM<->L2, where at N = {} {} moves {} less than {}.",
                             format_length(longest), flash->label,
                             format_ratio(static_cast<double>(standard->closed_form->total()) /
                                          static_cast<double>(flash->closed_form->total())),
                             standard->label);
      if (standard->simulated_dram && flash->simulated_dram) {
        caption += fmt::format(" At DRAM the factor is {}.",
                               format_ratio(static_cast<double>(standard->simulated_dram->total()) /
                                            static_cast<double>(flash->simulated_dram->total())));
      }
    }
    section.blocks.push_back(
        Figure{fmt::format("bytes-against-seqlen-{}-{}", direction_suffix(sweep), ++number),
               fmt::format("Bytes against sequence length, {} pass.", direction_suffix(sweep)), caption,
               commands_of(sweep), draw(chart)});
  }
  if (section.blocks.empty()) return std::nullopt;
  return section;
}

std::optional<Section> block_section(const std::vector<RunSummary>& runs) {
  Section section{"block-size", "Bytes against block size", {}};
  int number = 0;
  for (const Sweep& sweep : tile_sweeps(runs)) {
    std::vector<LineSeries> lines = boundary_lines(sweep, block_of);
    if (lines.empty()) continue;
    lines.push_back(floor_line(sweep, block_of));
    LineChart chart{doubling_axis("Block size (rows of the tile that a CTA keeps)",
                                  values_of(sweep, block_of), block_text),
                    byte_axis("Bytes read and written", lines), lines};
    section.blocks.push_back(Figure{
        fmt::format("bytes-against-block-size-{}-{}", direction_suffix(sweep), ++number),
        fmt::format("Bytes against block size, {} pass.", direction_suffix(sweep)),
        fmt::format(
            "{}. Doubling the block halves the sweeps over the streamed tensors, and with them the bytes "
            "at SM<->L2, until the part that is moved once shows.",
            describe_fixed(sweep, true)),
        commands_of(sweep), draw(chart)});
  }
  if (section.blocks.empty()) return std::nullopt;
  return section;
}

}  // namespace tilescope
