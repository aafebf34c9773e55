// SPDX-License-Identifier: Apache-2.0
// The drawing of the charts: lines with markers, stacked bars, and rooflines.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/report/figures/svg_frame.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::string line_class(const Look& look) {
  std::string name = look.line ? "l" : "l n";
  if (look.dash != Dash::solid) name += fmt::format(" d{}", static_cast<int>(look.dash));
  return name;
}

LegendEntry legend_entry(const LineSeries& series) {
  std::string sample = fmt::format("<g class=\"{}\">", color_class(series.look.color));
  if (series.look.line) sample += fmt::format("<path class=\"{}\" d=\"M0 0H24\"/>", line_class(series.look));
  if (series.look.marker != Marker::none) {
    sample += fmt::format("<path class=\"{}\" d=\"{}\"/>", marker_class(series.look),
                          marker_path(series.look.marker, 12, 0));
  }
  return {series.title, sample + "</g>"};
}

/// The line, its markers, and for a reader who points at them the texts of its points.
std::string draw_series(const LineSeries& series, const LineChart& chart, const Frame& frame) {
  std::string points, markers, texts;
  const bool at_all = series.marker_every == 1 && series.look.marker != Marker::none;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const auto [x, y] = series.points[i];
    const double at_x = frame.x(x), at_y = frame.y(y);
    points += fmt::format("{}{},{}", points.empty() ? "" : " ", coordinate(at_x), coordinate(at_y));
    if (!at_all && i % static_cast<std::size_t>(series.marker_every) == 0) {
      markers += marker_path(series.look.marker, at_x, at_y);
    }
    if (chart.x.format) {
      texts += (texts.empty() ? "" : "|") + chart.x.format(x);
      if (chart.y.format) texts += ": " + chart.y.format(y);
    }
  }
  std::string drawn = at_all ? marker_element(series.look) : "";
  drawn += fmt::format("<g class=\"{}\" data-s=\"{}\"><polyline class=\"{}\"{} points=\"{}\"{}/>",
                       color_class(series.look.color), escape_markup(series.title), line_class(series.look),
                       at_all ? fmt::format(" style=\"marker:url(#{})\"", marker_id(series.look)) : "",
                       points, texts.empty() ? "" : fmt::format(" data-t=\"{}\"", escape_markup(texts)));
  if (!markers.empty()) {
    drawn += fmt::format("<path class=\"{}\" d=\"{}\"/>", marker_class(series.look), markers);
  }
  return drawn + "</g>\n";
}

/// @param place of a point in the drawing
template <typename Place>
std::vector<EndLabel> end_labels(const LineChart& chart, Place place) {
  std::vector<EndLabel> labels;
  for (const LineSeries& series : chart.series) {
    if (series.label.empty() || series.points.empty()) continue;
    const auto [x, y] = place(series.points.back());
    labels.push_back({x, y, series.label, series.look.color});
  }
  return labels;
}

}  // namespace

Drawing draw(const LineChart& chart, bool with_legend) {
  const double beside = room_for(end_labels(chart, [](const ChartPoint&) { return std::pair(0.0, 0.0); }));
  const Frame frame(chart.x, chart.y, chart.plot_height, beside);
  Drawing drawing{frame.end(), frame.draw()};
  for (const LineSeries& series : chart.series) drawing.elements += draw_series(series, chart, frame);
  drawing.elements += draw_labels(
      end_labels(chart,
                 [&frame](const ChartPoint& point) { return std::pair(frame.x(point.x), frame.y(point.y)); }),
      frame);
  for (const ChartNote& note : chart.notes) {
    drawing.elements +=
        fmt::format("<text class=\"q\" x=\"{}\" y=\"{}\">{}</text>\n", coordinate(frame.x(note.at.x) + 8),
                    coordinate(frame.y(note.at.y)), escape_markup(note.text));
  }
  if (!with_legend) return drawing;
  const Drawing below = draw_legend(chart.series);
  return {drawing.height + below.height,
          drawing.elements + fmt::format("<g transform=\"translate(0,{})\">\n{}</g>\n",
                                         coordinate(drawing.height), below.elements)};
}

Drawing draw_legend(const std::vector<LineSeries>& series) {
  std::vector<LegendEntry> entries;
  for (const LineSeries& one : series) {
    if (one.label.empty()) entries.push_back(legend_entry(one));  // the others bear their names
  }
  return legend(entries, 0);
}

namespace {

std::string bar_sample(Color color) {
  return fmt::format("<rect class=\"b {}\" y=\"-6\" width=\"24\" height=\"12\"/>", color_class(color));
}

}  // namespace

Drawing draw(const StackedChart& chart) {
  constexpr double kBar = 14, kStep = 40, kGroupGap = 10, kLabel = 16;
  double longest = 0;
  for (const StackedBar& bar : chart.bars) {
    longest = std::max(longest, std::accumulate(bar.lengths.begin(), bar.lengths.end(), 0.0));
  }
  Drawing drawing;
  double y = -kGroupGap;
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const StackedBar& bar = chart.bars[i];
    if (std::ranges::find(chart.group_starts, i) != chart.group_starts.end()) {
      y += kGroupGap;
    }
    drawing.elements +=
        svg_text(0, y + 12, bar.label) + svg_text(kDrawingWidth, y + 12, bar.total, Anchor::end);
    double x = 0;
    for (std::size_t part = 0; part < chart.parts.size(); ++part) {
      if (bar.lengths[part] <= 0) continue;
      const double width = bar.lengths[part] / longest * kDrawingWidth;
      drawing.elements += fmt::format(
          "<rect class=\"b {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" data-t=\"{}: {}, {}\"/>\n",
          color_class(chart.parts[part].color), coordinate(x), coordinate(y + kLabel + 2), coordinate(width),
          kBar, escape_markup(bar.label), escape_markup(chart.parts[part].title),
          escape_markup(chart.format_tick(bar.lengths[part])));
      x += width;
    }
    y += kStep;
  }
  return {y + 16, drawing.elements + svg_text(0, y + 10, chart.x_label)};
}

Drawing draw_legend(const std::vector<BarPart>& parts) {
  std::vector<LegendEntry> entries;
  for (const BarPart& part : parts) entries.push_back({part.title, bar_sample(part.color)});
  return legend(entries, 0);
}

namespace {

constexpr double kPlotHeight = 250;

/// Axes round all roofs and kernels.
std::pair<ChartAxis, ChartAxis> axes(const RooflineChart& chart) {
  double x_low = HUGE_VAL, x_high = 0, y_low = HUGE_VAL, y_high = 0;
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
  y_high *= 1.9;
  return {{chart.x_label, logarithmic_ticks(x_low, x_high, format_tick), x_low, x_high},
          {chart.y_label, logarithmic_ticks(y_low, y_high, chart.format_rate), y_low, y_high}};
}

std::string roof_class(const Roof& roof) { return roof.dashed ? "l d1" : "l"; }

/// A level roof bears its label, a slanted one has it in the legend: they lie too close.
std::string draw_roof(const Roof& roof, const Frame& frame, const ChartAxis& x, const ChartAxis& y) {
  const double slope = roof.bytes_per_second.value_or(0);
  const double left = slope > 0 ? std::max(x.low, y.low / slope) : x.low;
  const double end = slope > 0 ? roof.work_per_second / slope : x.high;
  const double from_x = frame.x(left), from_y = frame.y(slope > 0 ? left * slope : roof.work_per_second);
  const double to_x = frame.x(end), to_y = frame.y(roof.work_per_second);
  std::string drawn = fmt::format("<g class=\"{}\"><path class=\"{}\" d=\"M{} {}L{} {}\"/></g>\n",
                                  color_class(roof.color), roof_class(roof), coordinate(from_x),
                                  coordinate(from_y), coordinate(to_x), coordinate(to_y));
  if (slope > 0) return drawn;
  return drawn + svg_text(frame.right, from_y + (roof.label_below ? 15 : -5), roof.label, Anchor::end);
}

/// At the first boundary the kernel's own marker, filled; at the second the same, open; at the third a cross.
Look at_boundary(Look look, std::size_t boundary) {
  look.filled = boundary == 0;
  if (boundary == 2) look.marker = Marker::cross;
  return look;
}

std::string marker(const Look& look, double x, double y) {
  return fmt::format("<path class=\"{}\" d=\"{}\"/>", marker_class(look), marker_path(look.marker, x, y));
}

std::string draw_kernel(const RooflineKernel& kernel, const RooflineChart& chart, const Frame& frame) {
  std::string points, texts, markers;
  const double y = frame.y(kernel.work_per_second);
  for (std::size_t b = 0; b < kernel.intensities.size(); ++b) {
    if (!kernel.intensities[b]) continue;
    const double x = frame.x(*kernel.intensities[b]);
    points += fmt::format("{}{},{}", points.empty() ? "" : " ", coordinate(x), coordinate(y));
    texts += fmt::format("{}{}: {} a byte, {}", texts.empty() ? "" : "|", chart.boundaries[b],
                         format_number(*kernel.intensities[b]), chart.format_rate(kernel.work_per_second));
    markers += marker(at_boundary(kernel.look, b), x, y);
  }
  return fmt::format(
      "<g class=\"{}\" data-s=\"{}\"><polyline class=\"l\" points=\"{}\" data-t=\"{}\"/>{}</g>\n",
      color_class(kernel.look.color), escape_markup(kernel.title), points, escape_markup(texts), markers);
}

std::string draw_arrow(const RooflineArrow& arrow, const RooflineChart& chart, const Frame& frame) {
  const RooflineKernel &from = chart.kernels[arrow.from], &to = chart.kernels[arrow.to];
  if (!from.intensities[arrow.boundary] || !to.intensities[arrow.boundary]) return "";
  const double x = frame.x(*to.intensities[arrow.boundary]), y = frame.y(to.work_per_second);
  const double from_x = frame.x(*from.intensities[arrow.boundary]), from_y = frame.y(from.work_per_second);
  const double length = std::hypot(x - from_x, y - from_y);
  if (length < 20) return "";
  constexpr double kShort = 7, kHead = 6, kHalf = 2.6;
  const double ux = (x - from_x) / length, uy = (y - from_y) / length;
  const double tip_x = x - kShort * ux, tip_y = y - kShort * uy;
  const double back_x = tip_x - kHead * ux, back_y = tip_y - kHead * uy;
  return fmt::format("<path class=\"a\" d=\"M{} {}L{} {}M{} {}L{} {} {} {}\"/>\n",
                     coordinate(from_x + kShort * ux), coordinate(from_y + kShort * uy), coordinate(tip_x),
                     coordinate(tip_y), coordinate(back_x - kHalf * uy), coordinate(back_y + kHalf * ux),
                     coordinate(tip_x), coordinate(tip_y), coordinate(back_x + kHalf * uy),
                     coordinate(back_y - kHalf * ux));
}

}  // namespace

Drawing draw(const RooflineChart& chart) {
  const auto [x, y] = axes(chart);
  std::vector<EndLabel> labels;
  for (const RooflineKernel& kernel : chart.kernels)
    labels.push_back({0, 0, short_name(kernel.title), kernel.look.color});
  const Frame frame(x, y, kPlotHeight, room_for(labels));
  std::string elements = frame.draw();
  for (const Roof& roof : chart.roofs) elements += draw_roof(roof, frame, x, y);
  for (const RooflineArrow& arrow : chart.arrows) elements += draw_arrow(arrow, chart, frame);
  std::vector<LegendEntry> entries;
  for (const RooflineKernel& kernel : chart.kernels) {
    elements += draw_kernel(kernel, chart, frame);
    EndLabel& label = labels[static_cast<std::size_t>(&kernel - chart.kernels.data())];
    label.y = frame.y(kernel.work_per_second);
    for (const auto& intensity : kernel.intensities) {
      if (intensity) label.x = std::max(label.x, frame.x(*intensity));
    }
  }
  elements += draw_labels(labels, frame);
  for (std::size_t b = 0; b < chart.boundaries.size(); ++b) {
    const Look look = at_boundary({.color = Color::grey, .marker = Marker::circle}, b);
    entries.push_back({chart.boundaries[b],
                       fmt::format("<g class=\"{}\">{}</g>", color_class(look.color), marker(look, 12, 0))});
  }
  for (const Roof& roof : chart.roofs) {
    if (!roof.bytes_per_second) continue;
    entries.push_back({roof.label, fmt::format("<g class=\"{}\"><path class=\"{}\" d=\"M0 0H24\"/></g>",
                                               color_class(roof.color), roof_class(roof))});
  }
  const Drawing below = legend(entries, frame.end() + 6);
  return {frame.end() + 6 + below.height, elements + below.elements};
}

}  // namespace tilescope
