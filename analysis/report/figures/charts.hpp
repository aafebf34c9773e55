// SPDX-License-Identifier: Apache-2.0
// The three kinds of chart in a report, as data, and their drawing through gnuplot.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tilescope {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

/// Line styles that stay apart in grey.
enum class Dash { solid, dashed, dotted, dash_dotted };

/// Marker shapes; filled and open variants of one shape belong together.
enum class Marker { none, circle, square, triangle, triangle_down, diamond, pentagon, cross, plus, star };

struct Look {
  const char* color = "#222222";  // a literal
  Marker marker = Marker::none;
  bool filled = true;
  Dash dash = Dash::solid;
  double width = 1.8;
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
};

struct LineChart {
  ChartAxis x, y;
  std::vector<LineSeries> series;
};
std::string draw(const LineChart& chart);

/// A ceiling of a roofline. Work is FLOP or instructions, as the axes say.
struct Roof {
  std::string label;
  double work_per_second = 0;              // level part; of a slanted roof the level where it ends
  std::optional<double> bytes_per_second;  // slanted part
  bool dashed = false;                     // datasheet figure rather than a measured one
  bool label_below = false;                // where another line is close above
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
std::string draw(const RooflineChart& chart);

struct BarPart {
  const char* title = "";  // a literal, like the colour
  const char* color = "#222222";
  int pattern = 3;  // gnuplot's fill pattern; 3 is solid
};

struct StackedBar {
  std::string label;            // left of the bar
  std::string total;            // right of it
  std::vector<double> lengths;  // one for each part
};

struct StackedChart {
  std::string x_label;
  std::string (*format_tick)(double) = nullptr;
  std::vector<BarPart> parts;
  std::vector<StackedBar> bars;           // top to bottom
  std::vector<std::size_t> group_starts;  // bars before which a gap stands
};
std::string draw(const StackedChart& chart);

}  // namespace tilescope
