// SPDX-License-Identifier: Apache-2.0
// The kinds of chart in a report, as data.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/looks.hpp"
#include "common/number_format.hpp"

namespace tilescope {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct LineSeries {
  std::string title;
  Look look;
  std::vector<ChartPoint> points;
  int marker_every = 1;    // points from one marker to the next
  std::string label = {};  // where the line ends; empty: the legend alone says what it is
};

using Ticks = std::vector<std::pair<std::string, double>>;

struct ChartAxis {
  std::string label;  // with its unit
  Ticks ticks;
  double low = 0;
  double high = 1;
  bool logarithmic = true;
  std::function<std::string(double)> format = nullptr;  // of a value that a reader points at
};

/// A text that begins beside a point.
struct ChartNote {
  ChartPoint at;
  std::string text;
};

struct LineChart {
  ChartAxis x, y;
  std::vector<LineSeries> series;
  std::vector<ChartNote> notes = {};
  double plot_height = 220;
};
Drawing draw(const LineChart& chart, bool with_legend = true);
/// A legend alone, of lines that may have no points.
Drawing draw_legend(const std::vector<LineSeries>& series);

/// A ceiling of a roofline. Work is FLOP or instructions, as the axes say.
struct Roof {
  std::string label;
  double work_per_second = 0;              // level part; of a slanted roof the level where it ends
  std::optional<double> bytes_per_second;  // slanted part
  bool dashed = false;                     // datasheet figure rather than a measured one
  bool label_below = false;                // of a level roof, where another is close above
  Color color = Color::grey;
};

/// One kernel at one rate, with an intensity for each boundary.
struct RooflineKernel {
  std::string title;
  Look look;
  double work_per_second = 0;
  std::vector<std::optional<double>> intensities;  // [work/B], one for each of RooflineChart::boundaries
};

/// From one kernel's point to another's, at one boundary. Indices.
struct RooflineArrow {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t boundary = 0;
};

struct RooflineChart {
  std::string x_label, y_label;
  std::string (*format_rate)(double) = nullptr;
  std::vector<std::string> boundaries;  // at most three
  std::vector<Roof> roofs;
  std::vector<RooflineKernel> kernels;
  std::vector<RooflineArrow> arrows;
};
Drawing draw(const RooflineChart& chart);

struct BarPart {
  const char* title = "";  // a literal
  Color color = Color::ink;
};

struct StackedBar {
  std::string label;            // above the bar
  std::string total;            // at the end of that line
  std::vector<double> lengths;  // one for each part
};

struct StackedChart {
  std::string x_label;
  std::string (*format_tick)(double) = nullptr;
  std::vector<BarPart> parts;
  std::vector<StackedBar> bars;           // top to bottom
  std::vector<std::size_t> group_starts;  // bars before which a gap stands
};
Drawing draw(const StackedChart& chart);
Drawing draw_legend(const std::vector<BarPart>& parts);

/// What crosses a boundary, read and written, and the part of it that must.
struct FlowBytes {
  std::optional<double> read, written;  // [bytes]; nothing where that was not counted
  std::optional<double> must_read = {}, must_write = {};
  std::string multiple = {};  // "26.6x" of what must move; empty where that is not known
  Outcome outcome = Outcome::informational;
};

/// SMs, L2 and DRAM, and what a pass moves between them, as wide as it is much.
struct FlowChart {
  std::optional<FlowBytes> sm_l2, dram;
  Color color = Color::ink;
  double widest = 0;  // what is drawn at full width, [bytes]: that of all charts to be compared
};
Drawing draw(const FlowChart& chart);
/// Gives all the same scale.
void share_width(std::vector<FlowChart>& charts);

/// A logarithmic axis of bytes round all points of `series`. @param bytes  which coordinate the bytes are
inline ChartAxis byte_axis(const std::string& label, const std::vector<LineSeries>& series,
                           double ChartPoint::*bytes = &ChartPoint::y) {
  double low = HUGE_VAL, high = 0;
  for (const LineSeries& line : series) {
    for (const ChartPoint& point : line.points) {
      low = std::min(low, point.*bytes);
      high = std::max(high, point.*bytes);
    }
  }
  low /= 1.6;
  high *= 1.6;
  return {label, logarithmic_ticks(low, high, format_bytes), low, high, true, format_bytes};
}

/// A logarithmic axis with a tick at each of the powers of two (or other values) of `values`.
inline ChartAxis doubling_axis(const std::string& label, std::vector<std::int64_t> values,
                               std::string (*format)(std::int64_t)) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  ChartAxis axis{label,
                 {},
                 static_cast<double>(values.front()) / 1.12,
                 static_cast<double>(values.back()) * 1.12,
                 true,
                 [format](double value) { return format(std::llround(value)); }};
  constexpr std::size_t kMostLabels = 9;
  const std::size_t stride = (values.size() + kMostLabels - 1) / kMostLabels;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    axis.ticks.emplace_back(format(values[i]), static_cast<double>(values[i]));
  }
  return axis;
}

}  // namespace tilescope
