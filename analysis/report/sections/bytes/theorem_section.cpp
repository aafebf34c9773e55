// SPDX-License-Identifier: Apache-2.0
// The constants of FlashAttention's Theorems 2 and 5, over M, d and N.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/model/counts/lower_bounds.hpp"
#include "analysis/model/validation/paper_counts.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/bytes/theorem_points.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kRuleParts = 4;  // Bc = ceil(M / 4d)

std::optional<double> printed_elements(const RunSummary& run) {
  const char* name = run.algorithm == Algorithm::flash1
                         ? (run.direction == Direction::forward ? "flash1-forward" : "flash1-backward")
                     : run.algorithm == Algorithm::standard
                         ? (run.direction == Direction::forward ? "standard-forward" : "standard-backward")
                         : nullptr;
  if (name == nullptr) return std::nullopt;
  const AttentionProblem& p = run.problem();
  const auto blocks = [&p](int block) { return (p.seqlen_k + block - 1) / block; };
  const PaperShape shape{p.seqlen_q, p.head_dim, blocks(run.tile.block_m), blocks(run.tile.block_n)};
  return static_cast<double>(find_paper_count(name).count(shape).total());
}

}  // namespace

std::vector<TheoremPoint> theorem_points(const std::vector<RunSummary>& study) {
  std::vector<TheoremPoint> points;
  for (const RunSummary& run : study) {
    if (!run.closed_form || !run.algorithm) continue;
    const AttentionProblem& p = run.problem();
    TheoremPoint point;
    point.run = &run;
    point.seqlen = static_cast<double>(p.seqlen_q);
    point.head_dim = static_cast<double>(p.head_dim);
    point.fast = kRuleParts * point.head_dim * run.tile.block_n;
    point.accesses = static_cast<double>(run.closed_form->total()) / element_bytes(p.dtype);
    point.as_printed = printed_elements(run);
    points.push_back(point);
  }
  return points;
}

Range range_of_points(const std::vector<TheoremPoint>& points, Algorithm algorithm, Direction direction,
                      const std::function<bool(const TheoremPoint&)>& wanted,
                      const std::function<double(const TheoremPoint&)>& value) {
  Range range{HUGE_VAL, 0, 0};
  for (const TheoremPoint& point : points) {
    if (point.run->algorithm != algorithm || point.run->direction != direction || !wanted(point)) continue;
    range.low = std::min(range.low, value(point));
    range.high = std::max(range.high, value(point));
    ++range.count;
  }
  return range;
}

std::string to_string(const Range& range) {
  return fmt::format("{} ... {}", format_number(range.low), format_number(range.high));
}

namespace {

std::string elements_text(double elements) { return format_length(std::llround(elements)); }

/// A row for each algorithm, direction and d; a column for each M.
Table constant_table(const std::vector<TheoremPoint>& points) {
  double longest = 0;
  std::set<double> sizes;
  for (const TheoremPoint& point : points) longest = std::max(longest, point.seqlen);
  for (const TheoremPoint& point : points) sizes.insert(point.fast);
  Table table{fmt::format("c = accesses x M / (N² d²) at N = {}, by M in elements; in brackets where M is "
                          "outside of d <= M <= N d.",
                          format_length(std::llround(longest))),
              {{"algorithm"}, {"pass"}, {"d", true}, {"d²", true}},
              {}};
  for (const double size : sizes) table.columns.push_back({"M = " + elements_text(size), true});
  std::map<std::tuple<Algorithm, Direction, double>, std::map<double, std::string>> cells;
  for (const TheoremPoint& point : points) {
    if (point.seqlen != longest) continue;
    const std::string number = fmt::format("{:.1f}", point.of_flash());
    cells[{*point.run->algorithm, point.run->direction, point.head_dim}][point.fast] =
        point.within_hypotheses() ? number : "(" + number + ")";
  }
  for (const auto& [key, by_size] : cells) {
    const auto& [algorithm, direction, head_dim] = key;
    std::vector<std::string> row = {std::string(to_string(algorithm)), std::string(to_string(direction)),
                                    fmt::format("{:g}", head_dim), elements_text(head_dim * head_dim)};
    for (const double size : sizes) row.push_back(by_size.contains(size) ? by_size.at(size) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// The most that the papers' orders allow: a block of queries and its outputs take all of M, so that K and V
/// are read 2 N d / M times.
double best_order_accesses(double seqlen, double head_dim, double fast) {
  const double sweeps = std::ceil(2 * seqlen * head_dim / fast);
  return 2 * seqlen * head_dim * (sweeps + 1);
}

/// The bound for one processor, which has it all to read.
LineSeries bound_line(Direction direction, double head_dim, const std::vector<double>& sizes) {
  LineSeries line{"lower bound on reads", kBoundLook, {}, 1, "lower bound"};
  const double entries = direction == Direction::forward ? 1 : 2;
  for (const double fast : sizes) {
    const double reads = score_read_bound(entries, head_dim, fast, 0);
    line.points.push_back({fast, reads * fast / (head_dim * head_dim)});
  }
  return line;
}

/// Kernels of the problem as counters saw them, at the memory that an SM has for them: registers and shared
/// memory.
void add_kernels(LineChart& chart, FigureLooks& looks, const std::vector<RunSummary>& runs,
                 const TheoremPoint& shape, Direction direction, std::vector<std::string>& commands) {
  std::set<std::string> seen;
  for (const RunSummary& run : runs) {
    const AttentionProblem& p = run.problem();
    if (!run.measured_sm_l2 || !run.algorithm || run.direction != direction || p.masked() ||
        static_cast<double>(p.head_dim) != shape.head_dim ||
        static_cast<double>(p.seqlen_q) != shape.seqlen || p.seqlen_k != p.seqlen_q ||
        p.heads != p.heads_kv || p.dtype != ElementType::fp16) {
      continue;
    }
    const std::optional<Machine> machine = machine_of_device(run.record->machine.name.value_or(""));
    const std::string name = short_name(run.run->kernel);
    if (!machine || !seen.insert(name).second) continue;
    const double width = element_bytes(p.dtype);
    const double fast = static_cast<double>(machine->on_chip_bytes_per_sm.value) / width;
    const double heads = static_cast<double>(p.batch * p.heads);
    const double elements = static_cast<double>(run.measured_sm_l2->total()) / width / heads;
    Look look = looks.take(run.run->kernel, run.algorithm);
    look.line = false;
    chart.series.push_back(
        {name + ", measured", look, {{fast, shape.of_flash(elements) / shape.fast * fast}}, 1, name});
    add_command(commands, *run.record);
  }
}

Drawing constant_chart(const std::vector<TheoremPoint>& points, const std::vector<RunSummary>& runs,
                       const TheoremPoint& shape, Direction direction, std::vector<std::string>& commands) {
  LineChart chart;
  FigureLooks looks;
  std::map<Algorithm, LineSeries> lines;
  std::vector<double> sizes;
  for (const TheoremPoint& point : points) {
    if (point.seqlen != shape.seqlen || point.head_dim != shape.head_dim || point.run->direction != direction)
      continue;
    const std::string name(to_string(*point.run->algorithm));
    LineSeries& line =
        lines
            .try_emplace(*point.run->algorithm, LineSeries{name + ", the paper's block rule",
                                                           look_of("cpu:" + name, point.run->algorithm),
                                                           {},
                                                           1,
                                                           name})
            .first->second;
    line.look.marker = Marker::none;
    line.points.push_back({point.fast, point.of_flash()});
    sizes.push_back(point.fast);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (auto& [algorithm, line] : lines) chart.series.push_back(std::move(line));
  if (direction == Direction::forward) {
    LineSeries best{"best order of FlashAttention-2", kFloorLook, {}, 1, "best order"};
    for (const double fast : sizes) {
      TheoremPoint at = shape;
      at.fast = fast;
      best.points.push_back({fast, at.of_flash(best_order_accesses(shape.seqlen, shape.head_dim, fast))});
    }
    chart.series.push_back(std::move(best));
  }
  chart.series.push_back(bound_line(direction, shape.head_dim, sizes));
  add_kernels(chart, looks, runs, shape, direction, commands);
  std::vector<std::int64_t> marks;
  for (const double size : sizes) marks.push_back(std::llround(size));
  chart.x = doubling_axis("M, elements on chip", marks, format_length);
  double low = HUGE_VAL, high = 0;
  for (const LineSeries& line : chart.series) {
    for (const ChartPoint& point : line.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  chart.y = {"accesses x M / (N² d²)",
             logarithmic_ticks(low / 1.5, high * 1.5, number),
             low / 1.5,
             high * 1.5,
             true,
             number};
  return draw(chart);
}

Figure constant_figure(const std::vector<TheoremPoint>& points, const std::vector<RunSummary>& runs,
                       const TheoremPoint& shape) {
  Figure figure{"theorem-constants",
                "The constant of Theorems 2 and 5 against M: bound, best order, the papers' rule, kernels."};
  figure.commands = {command_text(shape.run->record->argv)};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    figure.panels.push_back({fmt::format("{}, N {}, d {:g}", to_string(direction),
                                         format_length(std::llround(shape.seqlen)), shape.head_dim),
                             constant_chart(points, runs, shape, direction, figure.commands)});
  }
  const bool kernels = figure.commands.size() > 1;
  figure.caption = fmt::format(
      "Level lines fall as 1/M. The bound is of all reads that forming scores takes, whatever is done with "
      "V.{} Where a line rises as M, more memory saves nothing.",
      kernels
          ? " Markers are counters on a device, at the registers and shared memory that one of its SMs has."
          : "");
  return figure;
}

/// The points of the length and head that most kernels were measured at, else of the longest.
const TheoremPoint& shape_to_draw(const std::vector<TheoremPoint>& points,
                                  const std::vector<RunSummary>& runs) {
  const auto kernels = [&runs](const TheoremPoint& point) {
    std::set<std::string> names;
    for (const RunSummary& run : runs) {
      const AttentionProblem& p = run.problem();
      if (run.measured_sm_l2 && run.algorithm && !p.masked() && p.dtype == ElementType::fp16 &&
          static_cast<double>(p.head_dim) == point.head_dim &&
          static_cast<double>(p.seqlen_q) == point.seqlen) {
        names.insert(run.run->kernel);
      }
    }
    return std::pair(names.size(), point.seqlen);
  };
  return *std::ranges::max_element(points, {}, kernels);
}

std::string what_constants_say(const std::vector<TheoremPoint>& points) {
  const auto inside = [](const TheoremPoint& point) { return point.within_hypotheses(); };
  const auto c = [](const TheoremPoint& point) { return point.of_flash(); };
  const auto printed = [](const TheoremPoint& point) { return point.of_flash(*point.as_printed); };
  const auto range = [&](Algorithm algorithm, Direction direction, const auto& value) {
    return to_string(range_of_points(points, algorithm, direction, inside, value));
  };
  return fmt::format(
      "At every M, d and N of the study that meets d <= M <= N d, M < d² among them, FlashAttention has c = "
      "{} "
      "forward and {} backward. As printed, with every element as wide as the inputs, it has {} and {}: the "
      "programs keep O and dQ in fp32. **FlashAttention-2's forward pass does not fall as 1/M under the "
      "paper's rule**: its c is {}. The rule lets a block of queries have at most d rows, so from M = 4 d² "
      "on "
      "K and V are read N / d times however large M is. Its backward pass owns blocks of keys, whose rows "
      "the "
      "rule does not cap: c is {}.",
      range(Algorithm::flash1, Direction::forward, c), range(Algorithm::flash1, Direction::backward, c),
      range(Algorithm::flash1, Direction::forward, printed),
      range(Algorithm::flash1, Direction::backward, printed), range(Algorithm::flash2, Direction::forward, c),
      range(Algorithm::flash2, Direction::backward, c));
}

}  // namespace

std::optional<Section> theorem_section(const std::vector<RunSummary>& study,
                                       const std::vector<RunSummary>& runs) {
  const std::vector<TheoremPoint> points = theorem_points(study);
  if (points.empty()) return std::nullopt;
  Section section{"constants", "The constants of FlashAttention's Theorems 2 and 5", {}};
  section.blocks.push_back(Paragraph{what_constants_say(points)});
  section.blocks.push_back(constant_figure(points, runs, shape_to_draw(points, runs)));
  section.blocks.push_back(constant_table(points));
  section.blocks.push_back(CommandLines{reproduction({command_text(points.front().run->record->argv)})});
  return section;
}

}  // namespace tilescope
