// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/charts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/report/figures/gnuplot.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

using DataGroups = std::vector<std::vector<std::vector<double>>>;

/// gnuplot's point type numbers of the SVG terminal.
double point_type(Marker marker, bool filled) {
  switch (marker) {
    case Marker::none:
      return 0;
    case Marker::plus:
      return 1;
    case Marker::cross:
      return 2;
    case Marker::star:
      return 3;
    case Marker::square:
      return filled ? 5 : 4;
    case Marker::circle:
      return filled ? 7 : 6;
    case Marker::triangle:
      return filled ? 9 : 8;
    case Marker::triangle_down:
      return filled ? 11 : 10;
    case Marker::diamond:
      return filled ? 13 : 12;
    case Marker::pentagon:
      return filled ? 15 : 14;
  }
  return 0;
}

double dash_type(Dash dash) { return static_cast<double>(dash) + 1; }

void define_canvas(PlotInput& input, double width, double height, const std::string& x_label,
                   const std::string& y_label) {
  input.define("width", width);
  input.define("height", height);
  input.define("xlabel_text", x_label);
  input.define("ylabel_text", y_label);
}

/// What `value` gives of each item, a member or a function, for an array of the plot script.
template <typename Item, typename Value>
std::vector<std::string> texts(const std::vector<Item>& items, Value value) {
  std::vector<std::string> all;
  for (const Item& item : items) all.emplace_back(std::invoke(value, item));
  return all;
}
template <typename Item, typename Value>
std::vector<double> numbers(const std::vector<Item>& items, Value value) {
  std::vector<double> all;
  for (const Item& item : items) all.push_back(static_cast<double>(std::invoke(value, item)));
  return all;
}

void define_range(PlotInput& input, char axis, double low, double high) {
  input.define(std::string(1, axis) + "_min", low);
  input.define(std::string(1, axis) + "_max", high);
}

/// The part of a roofline chart that its roofs and kernels take, with room round it.
struct RooflineRange {
  double x_low = HUGE_VAL, x_high = 0, y_low = HUGE_VAL, y_high = 0;

  explicit RooflineRange(const RooflineChart& chart) {
    for (const RooflineKernel& kernel : chart.kernels) {
      for (const auto& intensity : kernel.intensities) {
        if (!intensity) continue;
        x_low = std::min(x_low, *intensity);
        x_high = std::max(x_high, *intensity);
      }
      y_low = std::min(y_low, kernel.work_per_second);
    }
    for (const Roof& roof : chart.roofs) y_high = std::max(y_high, roof.work_per_second);
    x_low /= 2.5;
    x_high *= 1.7;
    y_low /= 2.2;
    y_high *= 1.7;
  }
};

void define_roofs(PlotInput& input, const std::vector<Roof>& roofs, const RooflineRange& range) {
  constexpr double kLabelShift = 1.06;  // off the line's left end
  std::vector<double> label_x, label_y;
  DataGroups lines;
  for (const Roof& roof : roofs) {
    if (roof.bytes_per_second) {
      const double left = std::max(range.x_low, range.y_low / *roof.bytes_per_second);
      const double knee = roof.work_per_second / *roof.bytes_per_second;
      label_x.push_back(left * kLabelShift);
      label_y.push_back(label_x.back() * *roof.bytes_per_second);
      lines.push_back({{left, left * *roof.bytes_per_second}, {knee, roof.work_per_second}});
    } else {
      label_x.push_back(range.x_low * kLabelShift);
      label_y.push_back(roof.work_per_second);
      lines.push_back({{range.x_low, roof.work_per_second}, {range.x_high, roof.work_per_second}});
    }
  }
  input.define("roof_label", texts(roofs, &Roof::label));
  input.define("roof_x", label_x);
  input.define("roof_y", label_y);
  input.define("roof_slanted",
               numbers(roofs, [](const Roof& roof) { return roof.bytes_per_second ? 1 : 0; }));
  input.define("roof_below", numbers(roofs, &Roof::label_below));
  input.define("roof_dash", numbers(roofs, [](const Roof& roof) {
                 return dash_type(roof.dashed ? Dash::dashed : Dash::solid);
               }));
  input.data("roofs", lines);
}

/// At the first boundary the kernel's own marker, filled; at the second the same, open; at the third a cross.
double boundary_marker(const Look& look, std::size_t boundary) {
  return boundary == 2 ? point_type(Marker::cross, true) : point_type(look.marker, boundary == 0);
}

void define_kernels(PlotInput& input, const RooflineChart& chart) {
  std::vector<double> markers;
  DataGroups points;
  for (const RooflineKernel& kernel : chart.kernels) {
    auto& rows = points.emplace_back();
    for (std::size_t b = 0; b < 3; ++b) {
      markers.push_back(boundary_marker(kernel.look, b));
      const bool known = b < kernel.intensities.size() && kernel.intensities[b];
      if (known) rows.push_back({*kernel.intensities[b], kernel.work_per_second});
    }
  }
  input.define("kernel_title", texts(chart.kernels, &RooflineKernel::title));
  input.define("kernel_color",
               texts(chart.kernels, [](const RooflineKernel& kernel) { return kernel.look.color; }));
  input.define("kernel_marker", markers);
  input.data("kernels", points);
  std::vector<double> boundary_markers;
  for (std::size_t b = 0; b < chart.boundaries.size(); ++b) {
    boundary_markers.push_back(boundary_marker({.marker = Marker::circle}, b));
  }
  input.define("boundary_title", chart.boundaries);
  input.define("boundary_marker", boundary_markers);
}

void define_arrows(PlotInput& input, const RooflineChart& chart) {
  std::vector<double> from_x, from_y, to_x, to_y;
  for (const RooflineArrow& arrow : chart.arrows) {
    const RooflineKernel &from = chart.kernels[arrow.from], &to = chart.kernels[arrow.to];
    if (!from.intensities[arrow.boundary] || !to.intensities[arrow.boundary]) continue;
    from_x.push_back(*from.intensities[arrow.boundary]);
    from_y.push_back(from.work_per_second);
    to_x.push_back(*to.intensities[arrow.boundary]);
    to_y.push_back(to.work_per_second);
  }
  input.define("arrow_count", static_cast<double>(from_x.size()));
  input.define("arrow_x", from_x);
  input.define("arrow_y", from_y);
  input.define("arrow_to_x", to_x);
  input.define("arrow_to_y", to_y);
}

}  // namespace

std::string draw(const LineChart& chart) {
  PlotInput input;
  // Room for a key of one column: with two, gnuplot leaves none for the plot.
  constexpr double kKeyMargins = 110, kKeyRow = 27;
  const double height = std::max(470.0, kKeyMargins + kKeyRow * static_cast<double>(chart.series.size()));
  define_canvas(input, 960, height, chart.x.label, chart.y.label);
  define_range(input, 'x', chart.x.low, chart.x.high);
  define_range(input, 'y', chart.y.low, chart.y.high);
  input.define("log_x", chart.x.logarithmic ? 1.0 : 0.0);
  input.define("log_y", chart.y.logarithmic ? 1.0 : 0.0);
  input.ticks('x', chart.x.ticks);
  input.ticks('y', chart.y.ticks);
  const std::vector<LineSeries>& all = chart.series;
  std::vector<Look> looks;
  for (const LineSeries& series : all) looks.push_back(series.look);
  input.define("series_title", texts(all, &LineSeries::title));
  input.define("series_color", texts(looks, &Look::color));
  input.define("series_dash", numbers(looks, [](const Look& look) { return dash_type(look.dash); }));
  input.define("series_width", numbers(looks, &Look::width));
  input.define("series_marker",
               numbers(looks, [](const Look& look) { return point_type(look.marker, look.filled); }));
  input.define("series_size",
               numbers(looks, [](const Look& look) { return look.marker == Marker::none ? 0.0 : 0.75; }));
  input.define("series_marks", numbers(all, &LineSeries::marker_every));
  DataGroups groups;
  for (const LineSeries& series : all) {
    auto& rows = groups.emplace_back();
    for (const ChartPoint& point : series.points) rows.push_back({point.x, point.y});
  }
  input.data("series", groups);
  return draw_svg("plots/lines.gp", input);
}

std::string draw(const RooflineChart& chart) {
  const RooflineRange range(chart);
  PlotInput input;
  define_canvas(input, 960, 500, chart.x_label, chart.y_label);
  define_range(input, 'x', range.x_low, range.x_high);
  define_range(input, 'y', range.y_low, range.y_high);
  input.ticks('x', logarithmic_ticks(range.x_low, range.x_high, format_number));
  input.ticks('y', logarithmic_ticks(range.y_low, range.y_high, chart.format_rate));
  define_roofs(input, chart.roofs, range);
  define_kernels(input, chart);
  define_arrows(input, chart);
  return draw_svg("plots/roofline.gp", input);
}

std::string draw(const StackedChart& chart) {
  double longest = 0;
  for (const StackedBar& bar : chart.bars) {
    double total = 0;
    for (const double length : bar.lengths) total += length;
    longest = std::max(longest, total);
  }
  std::vector<double> bar_y, bar_end;
  std::vector<std::string> totals;
  Ticks labels;
  DataGroups parts(chart.parts.size());
  double y = 0;
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const bool starts_group =
        std::find(chart.group_starts.begin(), chart.group_starts.end(), i) != chart.group_starts.end();
    y -= i > 0 && starts_group ? 1.5 : 1;
    const StackedBar& bar = chart.bars[i];
    double x = 0;
    for (std::size_t part = 0; part < chart.parts.size(); ++part) {
      if (bar.lengths[part] > 0) parts[part].push_back({x, x + bar.lengths[part], y});
      x += bar.lengths[part];
    }
    labels.emplace_back(bar.label, y);
    totals.push_back(bar.total);
    bar_y.push_back(y);
    bar_end.push_back(x);
  }
  PlotInput input;
  define_canvas(input, 960, 130 + 34 * -y, chart.x_label, "");
  input.define("x_max", longest * 1.14);
  define_range(input, 'y', y - 0.7, -0.3);
  input.ticks('x', linear_ticks(longest * 1.14, chart.format_tick));
  input.ticks('y', labels);
  input.define("bar_label", totals);
  input.define("bar_y", bar_y);
  input.define("bar_end", bar_end);
  input.define("part_title", texts(chart.parts, &BarPart::title));
  input.define("part_color", texts(chart.parts, &BarPart::color));
  input.define("part_pattern", numbers(chart.parts, &BarPart::pattern));
  input.data("parts", parts);
  return draw_svg("plots/stacked.gp", input);
}

}  // namespace tilescope
