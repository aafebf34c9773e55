// SPDX-License-Identifier: Apache-2.0
// Figure -> SVG document, for Markdown.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/document/embedded_files.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

std::string escape_markup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string caption_text(const Figure& figure) {
  if (figure.panels.size() != 1) return figure.caption;
  const std::string& title = figure.panels.front().title;
  if (title.empty() || figure.caption.find(title) != std::string::npos) return figure.caption;
  return figure.caption.empty() ? title + "." : title + ". " + figure.caption;
}

std::string take_markers(std::string& markup) {
  constexpr std::string_view kBegin = "<marker ", kEnd = "</marker>";
  std::string rest, markers;
  std::size_t from = 0;
  for (std::size_t at; (at = markup.find(kBegin, from)) != std::string::npos;) {
    rest.append(markup, from, at - from);
    from = markup.find(kEnd, at) + kEnd.size();
    const std::string marker = markup.substr(at, from - at) + "\n";
    if (markers.find(marker) == std::string::npos) markers += marker;
  }
  markup = rest.append(markup, from);
  return markers;
}

namespace {

/// What stands in the drawing for the page's script alone, left out.
std::string without_data(std::string elements) {
  for (const std::string_view data : {" data-s=\"", " data-t=\""}) {
    std::string plain;
    std::size_t from = 0;
    for (std::size_t at; (at = elements.find(data, from)) != std::string::npos;) {
      plain.append(elements, from, at - from);
      from = elements.find('"', at + data.size()) + 1;
    }
    elements = plain.append(elements, from);
  }
  return elements;
}

}  // namespace

std::string to_svg(const Figure& figure) {
  constexpr double kMargin = 12, kGap = 28, kTitle = 22, kScale = 1.5;
  const bool several = figure.panels.size() > 1;
  const std::size_t columns = several ? 2 : 1;
  std::string body;
  double y = kMargin;
  for (std::size_t first = 0; first < figure.panels.size(); first += columns) {
    double row = 0;
    for (std::size_t i = first; i < std::min(first + columns, figure.panels.size()); ++i) {
      const Panel& panel = figure.panels[i];
      const double x = kMargin + static_cast<double>(i - first) * (kDrawingWidth + kGap);
      const double top = panel.title.empty() || !several ? y : y + kTitle;
      if (top > y) {
        body += fmt::format("<text class=\"h\" x=\"{}\" y=\"{}\">{}</text>\n", x, y + 12,
                            escape_markup(panel.title));
      }
      body += fmt::format("<g transform=\"translate({},{})\">\n{}</g>\n", x, top,
                          without_data(panel.drawing.elements));
      row = std::max(row, top - y + panel.drawing.height);
    }
    y += row + kMargin;
  }
  if (figure.legend.height > 0) {
    body += fmt::format("<g transform=\"translate({},{})\">\n{}</g>\n", kMargin, y, figure.legend.elements);
    y += figure.legend.height + kMargin;
  }
  const double width =
      2 * kMargin + static_cast<double>(columns) * kDrawingWidth + static_cast<double>(columns - 1) * kGap;
  const double scale = several ? 1 : kScale;
  const std::string markers = take_markers(body);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 {0} {1}\" width=\"{2}\" "
      "height=\"{3}\" role=\"img\">\n<title>{4}</title>\n<style>\n{5}</style>\n"
      "<rect class=\"bg\" width=\"{0}\" height=\"{1}\"/>\n{6}{7}</svg>\n",
      width, y, scale * width, scale * y, escape_markup(figure.title), embedded_file("templates/figure.css"),
      markers, body);
}

}  // namespace tilescope
