// SPDX-License-Identifier: Apache-2.0
// The three kinds of chart in a report, as data, and their drawing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report/document/report_document.hpp"

namespace tilescope {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

/// Classes c0 ... of templates/figure.css: Okabe and Ito's colours, darker on white and lighter on black, so
/// that each stands out from its ground.
enum class Color { dark, grey, blue, vermilion, green, purple, sky, amber, ink };

/// Line styles that stay apart in grey.
enum class Dash { solid, dashed, dotted, dash_dotted };

/// Marker shapes; filled and open variants of one shape belong together.
enum class Marker { none, circle, square, triangle, triangle_down, diamond, pentagon, cross, plus, star };

struct Look {
  Color color = Color::ink;
  Marker marker = Marker::none;
  bool filled = true;
  Dash dash = Dash::solid;
  bool line = true;  // or markers alone
};

struct LineSeries {
  std::string title;
  Look look;
  std::vector<ChartPoint> points;
  int marker_every = 1;  // points from one marker to the next
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

}  // namespace tilescope
