// SPDX-License-Identifier: Apache-2.0
// Bytes against sequence length and against block size.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/model/counts/lower_bounds.hpp"
#include "analysis/model/counts/measured_bytes.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

using BytesOf = std::optional<ReadWriteBytes> RunSummary::*;
/// What varies along a sweep.
using ValueOf = std::int64_t (*)(const RunSummary&);

/// The total at a boundary of each point that knows it.
std::vector<ChartPoint> totals(const SweepSeries& series, BytesOf boundary, ValueOf x) {
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
  const bool ambiguous = std::ranges::count_if(sweep.series, same_label) > 1;
  return ambiguous ? series.label + " " + to_string(series.tile) : series.label;
}

/// Which bytes a plot is of.
enum class Plotted : std::uint8_t { sm_l2, dram };

/// Lines of every kernel at a boundary, as the model gives it and as markers what was measured, over `x`.
std::vector<LineSeries> boundary_lines(const Sweep& sweep, Plotted boundary, ValueOf x,
                                       FigureLooks& palette) {
  std::vector<LineSeries> lines;
  const bool dram = boundary == Plotted::dram;
  const auto add = [&](const char* account, BytesOf bytes, bool measured) {
    for (const SweepSeries& series : sweep.series) {
      const std::string title = series_title(sweep, series);
      const Look look = palette.take(title, series.points.front()->algorithm);
      LineSeries line{fmt::format("{}, {}", title, account), dram ? at_dram(look) : look,
                      totals(series, bytes, x)};
      if (line.points.empty()) continue;
      const bool named = std::ranges::any_of(lines, [&](const LineSeries& other) {
        return other.label == short_name(title) && other.look.color == look.color;
      });
      if (!measured || !named) line.label = short_name(title);
      if (measured) {
        line.look.marker = dram ? Marker::cross : Marker::plus;
        line.look.line = false;
      }
      lines.push_back(std::move(line));
    }
  };
  if (dram) {
    add("DRAM simulated", &RunSummary::simulated_dram, false);
    add("DRAM measured", &RunSummary::measured_dram, true);
  } else {
    add("SM<->L2", &RunSummary::closed_form, false);
    add("SM<->L2 measured", &RunSummary::measured_sm_l2, true);
  }
  return lines;
}

const SweepSeries& longest_series(const Sweep& sweep) {
  return *std::ranges::max_element(sweep.series, [](const SweepSeries& a, const SweepSeries& b) {
    return a.points.size() < b.points.size();
  });
}

LineSeries floor_line(const Sweep& sweep, ValueOf x) {
  LineSeries line{"must move", kFloorLook, {}, 1, "must move"};
  for (const RunSummary* run : longest_series(sweep).points) {
    line.points.push_back({static_cast<double>(x(*run)), static_cast<double>(run->compulsory.total())});
  }
  return line;
}

std::vector<const RunSummary*> points_of(const std::vector<Sweep>& sweeps) {
  std::vector<const RunSummary*> points;
  for (const Sweep& sweep : sweeps) {
    for (const SweepSeries& series : sweep.series)
      points.insert(points.end(), series.points.begin(), series.points.end());
  }
  return points;
}

std::vector<std::int64_t> values_of(const Sweep& sweep, ValueOf x) {
  std::vector<std::int64_t> values;
  for (const RunSummary* run : points_of({sweep})) values.push_back(x(*run));
  return values;
}

/// The point of the first series of an algorithm at x, or null.
const RunSummary* point_at(const Sweep& sweep, Algorithm algorithm, std::int64_t x, ValueOf x_of) {
  for (const RunSummary* run : points_of({sweep})) {
    if (run->algorithm == algorithm && x_of(*run) == x) return run;
  }
  return nullptr;
}

/// What no kernel stays below at SM<->L2 with so much memory on chip: the bound on its reads, and its outputs
/// once.
std::optional<LineSeries> bound_line(const Sweep& sweep) {
  const std::optional<Machine> machine = machine_of(*sweep.series.front().points.front());
  if (!machine) return std::nullopt;
  LineSeries line{"lower bound", kBoundLook, {}, 1, "lower bound"};
  for (const RunSummary* run : longest_series(sweep).points) {
    const ReadBound bound =
        read_bound(run->problem(), run->direction, Algorithm::flash2, sm_memory(*machine));
    line.points.push_back({static_cast<double>(seqlen_of(*run)),
                           static_cast<double>(bound.bytes() + run->compulsory.write_bytes)});
  }
  return line;
}

/// ", for 66 MiB of registers and shared memory": what the bound holds for.
std::string memory_of(const Sweep& sweep) {
  const std::optional<Machine> machine = machine_of(*sweep.series.front().points.front());
  if (!machine) return "";
  const FastMemory memory = sm_memory(*machine);
  return fmt::format(", for {} of registers and shared memory",
                     format_capacity(memory.processors * memory.bytes_per_processor));
}

/// "At N = 64K flash2 moves 3.00x less than standard at SM<->L2 and 35x less at DRAM." or nothing.
std::string comparison_at(const Sweep& sweep, std::int64_t x, ValueOf x_of, const std::string& where) {
  const RunSummary* standard = point_at(sweep, Algorithm::standard, x, x_of);
  const RunSummary* flash = point_at(sweep, Algorithm::flash2, x, x_of);
  if (!standard || !flash || !standard->closed_form || !flash->closed_form) return "";
  const auto factor = [](const ReadWriteBytes& a, const ReadWriteBytes& b) {
    return format_ratio(static_cast<double>(a.total()) / static_cast<double>(b.total()));
  };
  std::string text = fmt::format(" At {} {} moves {} as many bytes as {} at SM<->L2", where, standard->label,
                                 factor(*standard->closed_form, *flash->closed_form), flash->label);
  if (standard->simulated_dram && flash->simulated_dram) {
    text += fmt::format(" and {} as many at DRAM", factor(*standard->simulated_dram, *flash->simulated_dram));
  }
  return text + ".";
}

/// " At DRAM flash2 moves 1.01x ... 9.8x what it must.", of all points that are drawn, or nothing.
std::string flash_at_dram(const std::vector<Sweep>& sweeps) {
  std::set<std::string_view> kernels;
  std::vector<double> ratios;
  bool found_in_l2 = false;
  for (const Sweep& sweep : sweeps) {
    for (const SweepSeries& series : sweep.series) {
      if (series.points.front()->algorithm != Algorithm::flash2) continue;
      for (const RunSummary* run : series.points) {
        const std::optional<double> ratio = dram_ratio(*run);
        if (!ratio) continue;
        kernels.insert(run->run->kernel);
        ratios.push_back(*ratio);
        found_in_l2 |= *ratio < 1 && std::ranges::any_of(run->passes, [run](const PassRecord* pass) {
          return too_few_reads(*run->run, *pass).has_value();
        });
      }
    }
  }
  if (ratios.empty()) return "";
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const std::string low = format_ratio(*least), high = format_ratio(*most);
  return fmt::format(" At DRAM {} move{} {}{} what {} must.{}", fmt::join(kernels, " and "),
                     kernels.size() == 1 ? "s" : "", low, low == high ? "" : " ... " + high,
                     kernels.size() == 1 ? "it" : "they",
                     found_in_l2 ? " Below 1.00x a launch found inputs in an L2 that was not cold." : "");
}

/// The largest x that both standard and flash2 have, or 0.
std::int64_t last_common(const Sweep& sweep, ValueOf x_of) {
  std::int64_t last = 0;
  for (const std::int64_t x : values_of(sweep, x_of)) {
    if (point_at(sweep, Algorithm::standard, x, x_of) && point_at(sweep, Algorithm::flash2, x, x_of)) {
      last = std::max(last, x);
    }
  }
  return last;
}

bool is_measured(const Sweep& sweep) {
  return std::ranges::any_of(sweep.series, [](const SweepSeries& series) {
    return series.points.front()->measured_sm_l2.has_value();
  });
}

/// What the lines and markers of boundary_lines() mean.
std::vector<LineSeries> legend_lines(bool measured) {
  const Look grey{.color = Color::grey, .marker = Marker::circle};
  std::vector<LineSeries> lines = {{"closed form", grey, {}}, {"simulated", at_dram(grey), {}}};
  if (!measured) return lines;
  lines.push_back({"SM<->L2, measured", {.color = Color::grey, .marker = Marker::plus, .line = false}, {}});
  lines.push_back({"DRAM, measured", {.color = Color::grey, .marker = Marker::cross, .line = false}, {}});
  return lines;
}

/// What the panels show.
std::string legend_of(const Sweep& sweep) {
  std::string text = "SM<->L2 by closed form, and DRAM, simulated, on the same axes.";
  return is_measured(sweep) ? text + " Crosses: both as counters measured them." : text;
}

/// "tile 128x64", or that kernels differ in it.
std::string tile_of(const Sweep& sweep) {
  const TileShape tile = sweep.series.front().tile;
  const bool same =
      std::ranges::all_of(sweep.series, [&](const SweepSeries& series) { return series.tile == tile; });
  return same ? "Tile " + to_string(tile) + "." : "Each kernel has its own tile.";
}

/// The sweeps in which kernels meet; all, where none meet in any.
std::vector<Sweep> most_compared(std::vector<Sweep> sweeps) {
  const auto alone = [](const Sweep& sweep) { return sweep.series.size() < 2; };
  if (!std::ranges::all_of(sweeps, alone)) std::erase_if(sweeps, alone);
  return sweeps;
}

/// The sweeps of one direction that are shown together: those that were measured, or the others.
std::vector<std::vector<Sweep>> by_kind(std::vector<Sweep> sweeps) {
  std::map<std::pair<Direction, bool>, std::vector<Sweep>> kinds;
  for (Sweep& sweep : sweeps) kinds[{sweep.direction, is_measured(sweep)}].push_back(std::move(sweep));
  std::vector<std::vector<Sweep>> groups;
  for (auto& [kind, members] : kinds) groups.push_back(std::move(members));
  return groups;
}

/// The sweeps that are drawn: of many those in which most kernels meet, at most points, in their order. All
/// of them stand in the tables of model against measurement.
std::vector<Sweep> drawn(std::vector<Sweep> sweeps) {
  constexpr std::size_t kMostPanels = 4;
  const auto weight = [](const Sweep& sweep) {
    return std::pair(sweep.series.size(), points_of({sweep}).size());
  };
  std::vector<std::pair<std::size_t, std::size_t>> weights;
  for (const Sweep& sweep : sweeps) weights.push_back(weight(sweep));
  std::sort(weights.rbegin(), weights.rend());
  if (weights.size() <= kMostPanels) return sweeps;
  const auto least = weights[kMostPanels - 1];
  std::erase_if(sweeps, [&](const Sweep& sweep) { return weight(sweep) < least; });
  sweeps.resize(std::min(sweeps.size(), kMostPanels));
  return sweeps;
}

/// Charts of sweeps, which share their axes, as the panels of a figure; all but its caption. `number` counts
/// the figures of one direction.
Figure sweep_figure(const Section& section, const std::vector<Sweep>& sweeps, int number,
                    const std::string& x_label, ValueOf x, std::string (*x_text)(std::int64_t)) {
  const bool by_length = x == seqlen_of;
  const Sweep& first = sweeps.front();
  std::vector<std::tuple<const Sweep*, Plotted, LineChart>> plots;
  std::vector<LineSeries> all;
  std::vector<std::int64_t> values;
  for (const Sweep& sweep : sweeps) {
    FigureLooks palette;  // of the two plots: what lies in another is told apart by its heading
    for (const Plotted boundary : {Plotted::sm_l2, Plotted::dram}) {
      std::vector<LineSeries> lines = boundary_lines(sweep, boundary, x, palette);
      if (lines.empty()) continue;
      if (by_length && boundary == Plotted::sm_l2) {
        if (std::optional<LineSeries> bound = bound_line(sweep)) lines.push_back(std::move(*bound));
      }
      lines.push_back(floor_line(sweep, x));
      all.insert(all.end(), lines.begin(), lines.end());
      plots.emplace_back(&sweep, boundary, LineChart{{}, {}, std::move(lines)});
    }
    std::ranges::copy(values_of(sweep, x), std::back_inserter(values));
  }
  Figure figure;
  figure.name = fmt::format("bytes-against-{}-{}-{}", section.name, to_string(first.direction), number);
  figure.title = fmt::format("{}, {} pass{}.", section.title, to_string(first.direction),
                             is_measured(first) ? ", with what counters saw" : "");
  for (auto& [sweep, boundary, chart] : plots) {
    const char* const where = boundary == Plotted::sm_l2 ? "SM<->L2" : "DRAM";
    chart.x = doubling_axis(x_label, values, x_text);
    chart.y = byte_axis(fmt::format("{} bytes read and written", where), all);
    Figure one;
    add_commands(one, *sweep);
    for (const std::string& command : one.commands) add_new(figure.commands, command);
    figure.panels.push_back(
        {fmt::format("{}: {}", where, describe_fixed(*sweep, !by_length)), draw(chart, false), one.commands});
  }
  figure.legend = draw_legend(legend_lines(is_measured(first)));
  const std::int64_t last = last_common(first, x);
  figure.caption =
      legend_of(first) +
      comparison_at(first, last, x, by_length ? "N = " + format_length(last) : fmt::format("{} rows", last));
  return figure;
}

}  // namespace

std::optional<Section> seqlen_section(const std::vector<RunSummary>& runs) {
  Section section{"seqlen", "Bytes against sequence length", {}, true};
  int numbers[2] = {};  // by direction
  for (const std::vector<Sweep>& sweeps : by_kind(most_compared(seqlen_sweeps(runs)))) {
    Figure figure =
        sweep_figure(section, drawn(sweeps), ++numbers[static_cast<int>(sweeps.front().direction)],
                     "Sequence length N (tokens)", seqlen_of, format_length);
    figure.caption = fmt::format(
        "{} At SM<->L2 all grow as N².{} That stays low while what concurrent CTAs stream together fits the "
        "L2; flash1 runs one CTA a head, so that each head streams its own. {} The lower bound at SM<->L2 "
        "is that of Hong and Kung and of Saha and Ye on reads{}; the outputs are added.",
        tile_of(sweeps.front()), flash_at_dram(sweeps), figure.caption, memory_of(sweeps.front()));
    section.blocks.emplace_back(std::move(figure));
  }
  if (section.blocks.empty()) return std::nullopt;
  section.title = with_machines(section.title, points_of(seqlen_sweeps(runs)));
  return section;
}

std::optional<Section> block_section(const std::vector<RunSummary>& runs) {
  Section section{"block-size", "Bytes against block size", {}};
  int numbers[2] = {};  // by direction
  for (const std::vector<Sweep>& sweeps : by_kind(most_compared(tile_sweeps(runs)))) {
    Figure figure =
        sweep_figure(section, drawn(sweeps), ++numbers[static_cast<int>(sweeps.front().direction)],
                     "Block size (rows of the tile that a CTA keeps)", block_of, block_text);
    figure.caption +=
        " Twice the block, half the sweeps over what is streamed, and half the bytes at SM<->L2, until "
        "what is moved once shows. DRAM does not see the block size while the L2 holds what is streamed.";
    section.blocks.emplace_back(std::move(figure));
  }
  if (section.blocks.empty()) return std::nullopt;
  section.title = with_machines(section.title, points_of(tile_sweeps(runs)));
  return section;
}

}  // namespace tilescope
