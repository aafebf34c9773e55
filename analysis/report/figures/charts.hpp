// SPDX-License-Identifier: Apache-2.0
// The three kinds of chart in a report, as data, and how kernels and boundaries look in all of them: one
// colour and shape a kernel, solid lines and filled markers at SM<->L2, dashed lines and open markers at
// DRAM.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/document/report_document.hpp"
#include "common/number_format.hpp"

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

/// Hands out looks: the algorithms keep theirs, a second kernel of an algorithm takes the next spare one.
class KernelLooks {
 public:
  /// The one that `kernel` was given before, if it was.
  Look take(std::optional<Algorithm> algorithm, const std::string& kernel) {
    const auto known = by_kernel_.find(kernel);
    if (known != by_kernel_.end()) return known->second;
    return by_kernel_[kernel] = take(algorithm);
  }
  /// Those handed out by name.
  const std::map<std::string, Look>& known() const { return by_kernel_; }

  Look take(std::optional<Algorithm> algorithm) {
    static const std::vector<Look> own = {{.color = Color::dark, .marker = Marker::circle},
                                          {.color = Color::vermilion, .marker = Marker::triangle},
                                          {.color = Color::blue, .marker = Marker::square}};
    static const std::vector<Look> spare = {{.color = Color::purple, .marker = Marker::diamond},
                                            {.color = Color::green, .marker = Marker::pentagon},
                                            {.color = Color::amber, .marker = Marker::triangle_down},
                                            {.color = Color::sky, .marker = Marker::star}};
    if (algorithm) {
      bool& used = used_[static_cast<std::size_t>(*algorithm)];
      if (!used) {
        used = true;
        return own[static_cast<std::size_t>(*algorithm)];
      }
    }
    Look look = spare[next_spare_ % spare.size()];
    if (next_spare_++ >= spare.size()) {  // the colours again
      look.dash = Dash::dotted;
      look.filled = false;
    }
    return look;
  }

 private:
  std::map<std::string, Look> by_kernel_;
  bool used_[3] = {};
  std::size_t next_spare_ = 0;
};

inline Look at_dram(Look look) {
  look.dash = Dash::dashed;
  look.filled = false;
  return look;
}

inline const Look kFloorLook = {.dash = Dash::dash_dotted};
inline const Look kBoundLook = {.dash = Dash::dotted};

/// A logarithmic axis of bytes round all points of `series`, of which they are y or x.
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
  std::sort(values.begin(), values.end());
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
