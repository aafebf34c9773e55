// SPDX-License-Identifier: Apache-2.0
// Lines with markers over two axes.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/figures/svg_frame.hpp"

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

}  // namespace

Drawing draw(const LineChart& chart, bool with_legend) {
  const Frame frame(chart.x, chart.y, chart.plot_height);
  Drawing drawing{frame.end(), frame.draw()};
  for (const LineSeries& series : chart.series) drawing.elements += draw_series(series, chart, frame);
  for (const ChartNote& note : chart.notes) {
    drawing.elements += svg_text(frame.x(note.at.x) + 8, frame.y(note.at.y), note.text);
  }
  if (!with_legend) return drawing;
  const Drawing below = draw_legend(chart.series);
  return {drawing.height + below.height,
          drawing.elements + fmt::format("<g transform=\"translate(0,{})\">\n{}</g>\n",
                                         coordinate(drawing.height), below.elements)};
}

Drawing draw_legend(const std::vector<LineSeries>& series) {
  std::vector<LegendEntry> entries;
  for (const LineSeries& one : series) entries.push_back(legend_entry(one));
  return legend(entries, 0);
}

}  // namespace tilescope
