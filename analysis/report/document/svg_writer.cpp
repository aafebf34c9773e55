// SPDX-License-Identifier: Apache-2.0
// Figure -> SVG document, for Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "analysis/report/document/report_document.hpp"
#include "common/wrap_words.hpp"

namespace tilescope {
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

/// A heading in lines as wide as a panel: SVG does not wrap it.
std::vector<std::string> heading_lines(const std::string& heading) {
  constexpr std::size_t kMostLetters = 52;  // 7.6 wide, bold at 12.5 px
  return wrap_words(heading, kMostLetters);
}

/// The style sheet in one line, without spaces that separate nothing: it stands in every figure.
std::string compact_style() {
  constexpr std::string_view kSeparators = "{};:,";
  const auto separates = [&](char c) { return kSeparators.find(c) != std::string_view::npos; };
  std::string style;
  for (const char c : embedded_file("templates/figure.css")) {
    const bool space = c == ' ' || c == '\n';
    if (space && (style.empty() || style.back() == ' ' || separates(style.back()))) continue;
    if (separates(c) && style.ends_with(' ')) style.pop_back();
    style += space ? ' ' : c;
  }
  return style;
}

/// The style sheet without the colours, .c0 ... of looks.hpp, that a drawing has no element of.
std::string style_of(const std::string& drawing) {
  std::string style = compact_style();
  for (int colour = 0;; ++colour) {
    const std::string rule = fmt::format(".c{}{{", colour);
    if (style.find(rule) == std::string::npos) return style;
    const bool drawn = drawing.find(fmt::format("c{}\"", colour)) != std::string::npos ||
                       drawing.find(fmt::format("c{} ", colour)) != std::string::npos;
    for (std::size_t at = style.find(rule); !drawn && at != std::string::npos; at = style.find(rule))
      style.erase(at, style.find('}', at) + 1 - at);
  }
}

}  // namespace

std::string to_svg(const Figure& figure) {
  constexpr double kMargin = 12, kGap = 28, kBelowTitle = 6, kTitleLine = 16,
                   kScale = 1.28;  // text as large as that round it
  const bool several = figure.panels.size() > 1;
  const std::size_t columns = several ? 2 : 1;
  std::string body;
  double y = kMargin;
  for (std::size_t first = 0; first < figure.panels.size(); first += columns) {
    const std::size_t end = std::min(first + columns, figure.panels.size());
    double row = 0;
    std::size_t most_lines = 0;
    for (std::size_t i = first; several && i < end; ++i)
      most_lines = std::max(most_lines, heading_lines(figure.panels[i].title).size());
    const double top = most_lines == 0 ? y : y + kBelowTitle + kTitleLine * static_cast<double>(most_lines);
    for (std::size_t i = first; i < end; ++i) {
      const Panel& panel = figure.panels[i];
      const double x = kMargin + static_cast<double>(i - first) * (kDrawingWidth + kGap);
      double baseline = y + 12;
      for (const std::string& line : several ? heading_lines(panel.title) : std::vector<std::string>{}) {
        body +=
            fmt::format("<text class=\"h\" x=\"{}\" y=\"{}\">{}</text>\n", x, baseline, escape_markup(line));
        baseline += kTitleLine;
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
      "height=\"{3}\" role=\"img\">\n<title>{4}</title>\n<style>{5}</style>\n"
      "<rect class=\"bg\" width=\"{0}\" height=\"{1}\"/>\n{6}{7}</svg>\n",
      width, y, scale * width, scale * y, escape_markup(figure.title), style_of(markers + body), markers,
      body);
}

}  // namespace tilescope
