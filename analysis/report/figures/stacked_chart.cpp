// SPDX-License-Identifier: Apache-2.0
// Horizontal stacked bars, each below its label, so that they are as long on a phone as anywhere.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/report/figures/svg_frame.hpp"

namespace tilescope {
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
    if (std::find(chart.group_starts.begin(), chart.group_starts.end(), i) != chart.group_starts.end()) {
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

}  // namespace tilescope
