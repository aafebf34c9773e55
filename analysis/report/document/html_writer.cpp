// SPDX-License-Identifier: Apache-2.0
// Document -> one self-contained HTML page.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/document/embedded_files.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kBoundary = "SM<->L2";

std::string escape(std::string_view text) {
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

/// The text up to `end`, and past it; nothing when `end` does not follow.
bool take_until(std::string_view& rest, std::string_view end, std::string_view& taken) {
  const std::size_t at = rest.find(end);
  if (at == std::string_view::npos) return false;
  taken = rest.substr(0, at);
  rest.remove_prefix(at + end.size());
  return true;
}

/// Inline marks of report_document.hpp to HTML.
std::string inline_html(std::string_view rest) {
  std::string html;
  std::string_view inner, address;
  while (!rest.empty()) {
    std::string_view ahead = rest.substr(1);
    if (rest.starts_with(kBoundary)) {
      html +=
          fmt::format("<span class=\"term\">{}</span>", escape(kBoundary));  // browsers break it at its dash
      ahead = rest.substr(kBoundary.size());
    } else if (rest.starts_with("**") && (ahead = rest.substr(2), take_until(ahead, "**", inner))) {
      html += "<strong>" + inline_html(inner) + "</strong>";
    } else if (rest.starts_with("`") && take_until(ahead, "`", inner)) {
      html += "<code>" + escape(inner) + "</code>";
    } else if (rest.starts_with("[") && take_until(ahead, "](", inner) && take_until(ahead, ")", address)) {
      html += fmt::format("<a href=\"{}\">{}</a>", escape(address), inline_html(inner));
    } else {
      html += escape(rest.substr(0, 1));
      ahead = rest.substr(1);
    }
    rest = ahead;
  }
  return html;
}

/// The SVG element alone, scaled by the page, its ids made unique on the page.
std::string inline_svg(const Figure& figure) {
  std::string svg = figure.svg.substr(figure.svg.find("<svg"));
  const auto replace_all = [&svg](std::string_view from, const std::string& to) {
    for (std::size_t at = 0; (at = svg.find(from, at)) != std::string::npos; at += to.size()) {
      svg.replace(at, from.size(), to);
    }
  };
  for (const std::string_view mark : {"id='", "id=\"", "href='#", "href=\"#", "url(#"}) {
    replace_all(mark, std::string(mark) + figure.name + "-");
  }
  svg.insert(4, fmt::format(" role=\"img\" aria-label=\"{}\"", escape(figure.title)));
  return svg;
}

struct HtmlWriter {
  std::string html;

  void operator()(const Paragraph& paragraph) { html += "<p>" + inline_html(paragraph.text) + "</p>\n"; }

  void operator()(const Bullets& bullets) {
    html += "<ul>\n";
    for (const std::string& item : bullets.items) html += "<li>" + inline_html(item) + "</li>\n";
    html += "</ul>\n";
  }

  void operator()(const CommandLines& commands) {
    html += "<pre>";
    for (const std::string& line : commands.lines) {
      html += &line == &commands.lines.front() ? "" : "\n";
      add_words(line);
    }
    html += "</pre>\n";
  }

  void operator()(const Table& table) {
    html += "<table>\n";
    if (!table.caption.empty()) html += "<caption>" + inline_html(table.caption) + "</caption>\n";
    html += "<thead><tr>";
    for (const Table::Column& column : table.columns) add_cell("th", column, column.header);
    html += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      if (row.size() == 1 && table.columns.size() > 1) {
        html += fmt::format("<tr class=\"group\"><th colspan=\"{}\">{}</th></tr>\n", table.columns.size(),
                            inline_html(row.front()));
        continue;
      }
      html += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i) add_cell("td", table.columns[i], row[i]);
      html += "</tr>\n";
    }
    html += "</tbody>\n</table>\n";
  }

  void operator()(const Figure& figure) {
    html += fmt::format("<figure id=\"{}\">\n{}\n<figcaption><strong>{}</strong> {}\n", figure.name,
                        inline_svg(figure), inline_html(figure.title), inline_html(figure.caption));
    if (!figure.commands.empty()) (*this)(CommandLines{reproduction(figure.commands)});
    html += "</figcaption>\n</figure>\n";
  }

 private:
  /// Keeps each word of a command in one piece: browsers break lines inside "--option".
  void add_words(std::string_view line) {
    for (std::size_t start = 0; start < line.size();) {
      const std::size_t end = std::min(line.find(' ', start), line.size());
      html += fmt::format("<span class=\"term\">{}</span>{}", escape(line.substr(start, end - start)),
                          end < line.size() ? " " : "");
      start = end + 1;
    }
  }

  void add_cell(std::string_view element, const Table::Column& column, std::string_view text) {
    html += fmt::format("<{}{}>{}</{}>", element, column.numeric ? " class=\"number\"" : "",
                        inline_html(text), element);
  }
};

}  // namespace

std::string to_html(const Document& document) {
  HtmlWriter writer;
  writer.html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n<nav><ul>\n",
      escape(document.title), embedded_file("templates/report.css"), escape(document.title),
      inline_html(document.lead));
  for (const Section& section : document.sections) {
    writer.html += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", section.name, escape(section.title));
  }
  writer.html += "</ul></nav>\n";
  for (const Section& section : document.sections) {
    writer.html += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", section.name, escape(section.title));
    for (const Block& block : section.blocks) std::visit(writer, block);
    writer.html += "</section>\n";
  }
  return writer.html + "</body>\n</html>\n";
}

}  // namespace tilescope
