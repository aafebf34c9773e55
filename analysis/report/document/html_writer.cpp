// SPDX-License-Identifier: Apache-2.0
// Document -> one self-contained HTML page.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/document/report_document.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kBoundary = "SM<->L2";

/// Inline marks of report_document.hpp to HTML.
std::string inline_html(std::string_view rest) {
  std::string html;
  std::string_view inner, address;
  while (!rest.empty()) {
    std::string_view ahead = rest.substr(1);
    if (rest.starts_with(kBoundary)) {
      // Browsers break it at its dash.
      html += fmt::format("<span class=\"term\">{}</span>", escape_markup(kBoundary));
      ahead = rest.substr(kBoundary.size());
    } else if (rest.starts_with("**") && (ahead = rest.substr(2), take_until(ahead, "**", inner))) {
      html += "<strong>" + inline_html(inner) + "</strong>";
    } else if (rest.starts_with("`") && take_until(ahead, "`", inner)) {
      html += "<code>" + escape_markup(inner) + "</code>";
    } else if (rest.starts_with("[") && take_until(ahead, "](", inner) && take_until(ahead, ")", address) &&
               may_link_to(address)) {
      html += fmt::format("<a href=\"{}\">{}</a>", escape_markup(address), inline_html(inner));
    } else {
      html += escape_markup(rest.substr(0, 1));
      ahead = rest.substr(1);
    }
    rest = ahead;
  }
  return html;
}

std::string svg_element(const Drawing& drawing, const std::string& label) {
  return fmt::format("<svg class=\"fig\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
                     kDrawingWidth, drawing.height, escape_markup(label), drawing.elements);
}

std::string group_anchor(SectionGroup group) { return fmt::format("group-{}", static_cast<int>(group) + 1); }

struct HtmlWriter {
  std::string html;
  std::string section_title;
  bool has_records = false;  // a section that says where the numbers come from
  bool few = false;          // so few sections that there is room for long tables

  void operator()(const Paragraph& paragraph) { html += "<p>" + inline_html(paragraph.text) + "</p>\n"; }

  void operator()(const Bullets& bullets) {
    const bool folded = !bullets.folded_under.empty();
    if (folded) {
      html +=
          fmt::format("<details class=\"more\"><summary>{}</summary>\n", inline_html(bullets.folded_under));
    }
    html += "<ul>\n";
    for (const std::string& item : bullets.items) html += "<li>" + inline_html(item) + "</li>\n";
    html += folded ? "</ul>\n</details>\n" : "</ul>\n";
  }

  void operator()(const CommandLines& commands) { add_commands(commands, ""); }

  void add_commands(const CommandLines& commands, const std::string& below) {
    html += fmt::format("<details class=\"command\"><summary>{}</summary>\n<pre tabindex=\"0\">",
                        commands.lines.size() > 1 ? "Commands" : "Command");
    for (const std::string& line : commands.lines) {
      html += &line == &commands.lines.front() ? "" : "\n";
      html += escape_markup(line);
    }
    html += "</pre>" + below + "</details>\n";
  }

  void operator()(const Table& table) {
    const auto rows =
        std::ranges::count_if(table.rows, [&table](const auto& row) { return !is_heading(table, row); });
    const bool folded = rows > static_cast<std::ptrdiff_t>(kMostOpenRows);
    const bool grouped = rows < static_cast<std::ptrdiff_t>(table.rows.size());
    // Outside of what scrolls sideways on a phone.
    if (!table.caption.empty()) html += "<p class=\"caption\">" + inline_html(table.caption) + "</p>\n";
    if (folded)
      html += fmt::format("<details class=\"long\"{}><summary>{} rows</summary>\n", few ? " open" : "", rows);
    std::string classes;  // which columns are numbers: report.css aligns them
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].numeric) classes += fmt::format("{}n{}", classes.empty() ? "" : " ", i + 1);
    }
    html += fmt::format(
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table class=\"{}\"{}>\n",
        escape_markup("Table: " + section_title), classes,
        grouped ? fmt::format(" data-group=\"{}\"", escape_markup(table.group_header)) : "");
    html += "<thead><tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      html += fmt::format("<th scope=\"col\"{}>{}</th>", has_long_text(table, i) ? " class=\"w\"" : "",
                          inline_html(table.columns[i].header));
    }
    html += "</tr></thead>\n<tbody>\n";
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      add_row(table, table.rows[i], i < table.outcomes.size() ? table.outcomes[i] : Outcome::informational);
    }
    html += "</tbody>\n</table>\n</div>\n";
    if (folded) html += "</details>\n";
  }

  void operator()(const Figure& figure) {
    html += fmt::format("<figure id=\"{}\">\n<h4>{}</h4>\n<div class=\"panels{}\">\n", figure.name,
                        inline_html(figure.title), figure.panels.size() > 1 ? "" : " one");
    for (const Panel& panel : figure.panels) add_panel(figure, panel);
    if (figure.legend.height > 0) {
      html += "<div class=\"legend\">" + svg_element(figure.legend, "Legend of " + figure.title) + "</div>\n";
    }
    html += "</div>\n";
    add_caption(figure, caption_text(figure));
  }

  /// A figure shows one of its panels at a time: that of the chosen button. It needs no script.
  void add_picture(const Figure& figure) {
    html += fmt::format("<figure class=\"picture\" id=\"{}\">\n<h2>{}</h2>\n<div class=\"choices\">\n",
                        figure.name, inline_html(figure.title));
    for (std::size_t i = 0; i < figure.panels.size(); ++i) {
      const std::string id = fmt::format("{}-{}", figure.name, i + 1);
      if (figure.panels.size() > 1) {
        html +=
            fmt::format("<input type=\"radio\" name=\"{}\" id=\"{}\"{}>\n<label for=\"{}\">{}</label>\n",
                        figure.name, id, i == 0 ? " checked" : "", id, inline_html(figure.panels[i].title));
      } else {
        html += fmt::format("<p>{}</p>\n", inline_html(figure.panels[i].title));
      }
      html += "<div class=\"shown\">" +
              svg_element(figure.panels[i].drawing, figure.title + " " + figure.panels[i].title) + "</div>\n";
    }
    html += "</div>\n";
    add_caption(figure, figure.caption);
  }

  void add_verdict(const Finding& verdict) {
    html += fmt::format(
        "<section class=\"verdict {}\">\n<h2>{}</h2>\n{}<p>{}{}</p>\n</section>\n", class_of(verdict.outcome),
        escape_markup(verdict.question), figures_of(verdict), inline_html(verdict.sentence),
        verdict.section.empty() ? "" : fmt::format(" <a href=\"#{}\">More</a>", verdict.section));
  }

 private:
  static const char* class_of(Outcome outcome) {
    constexpr const char* classes[] = {"good", "mixed", "bad", "informational"};
    return classes[static_cast<std::size_t>(outcome)];
  }

  static std::string figures_of(const Finding& verdict) {
    std::string lines = "<div class=\"lines\">\n";
    for (const FindingLine& line : verdict.lines) {
      lines += line.of.empty() ? "<p class=\"line\">"
                               : "<p class=\"line of\"><span>" + inline_html(line.of) + "</span>";
      for (const Amount& amount : line.amounts) {
        lines += fmt::format(" <b class=\"{}\">{}{}</b>", class_of(amount.outcome),
                             amount.of.empty() ? "" : "<small>" + inline_html(amount.of) + "</small> ",
                             inline_html(amount.value));
      }
      lines += "</p>\n";
    }
    return lines + "</div>\n";
  }

  void add_caption(const Figure& figure, const std::string& caption) {
    html += fmt::format("<figcaption>{}\n", inline_html(caption));
    if (!figure.commands.empty()) {
      add_commands({reproduction(figure.commands)},
                   has_records ? "<a href=\"#records\">Commit, time and machine of these records</a>" : "");
    }
    html += "</figcaption>\n</figure>\n";
  }

  /// Whether a column has a cell that would be a tall one beside many columns of numbers.
  static bool has_long_text(const Table& table, std::size_t column) {
    constexpr std::size_t kLong = 30;
    return !table.columns[column].numeric && std::ranges::any_of(table.rows, [&](const auto& row) {
      return !is_heading(table, row) && row[column].size() > kLong;
    });
  }

  static bool is_heading(const Table& table, const std::vector<std::string>& row) {
    return row.size() == 1 && table.columns.size() > 1;
  }

  /// What HTML does without would be a quarter of a page: end tags, and the scope of a first cell, which
  /// heads its row as a column of headers alone.
  void add_row(const Table& table, const std::vector<std::string>& row, Outcome of_last) {
    html += is_heading(table, row)
                ? fmt::format("<tr class=\"group\"><th colspan=\"{}\">", table.columns.size())
                : "<tr><th>";
    html += inline_html(row.front());
    for (std::size_t i = 1; i < row.size(); ++i) {
      const bool thought_of = i + 1 == row.size() && of_last != Outcome::informational;
      html +=
          (thought_of ? fmt::format("<td class=\"{}\">", class_of(of_last)) : "<td>") + inline_html(row[i]);
    }
    html += "\n";
  }

  void add_panel(const Figure& figure, const Panel& panel) {
    const bool one = figure.panels.size() == 1;
    const std::vector<std::string>& commands = panel.commands.empty() ? figure.commands : panel.commands;
    std::string command = commands.empty() ? "" : commands.front();
    if (commands.size() > 1) command += fmt::format("\nand {} more commands", commands.size() - 1);
    html += fmt::format("<div class=\"panel\" data-p=\"{}\" data-c=\"{}\"{}>\n", escape_markup(panel.title),
                        escape_markup(command), panel.steps ? " data-steps" : "");
    if (!panel.title.empty() && !one) html += fmt::format("<h5>{}</h5>\n", inline_html(panel.title));
    html += svg_element(panel.drawing, one ? figure.title : figure.title + " " + panel.title);
    html += "</div>\n";
  }
};

/// Where in the page which group and section stands; empty where there is little to find.
std::string contents_html(const Document& document) {
  if (document.sections.size() <= kFewSections) return "";
  std::string html =
      "<nav class=\"contents\" aria-label=\"Contents\">\n<details open><summary>Contents</summary>\n<ul>\n";
  const Section* before = nullptr;
  for (const Section& section : document.sections) {
    if (before == nullptr || before->group != section.group) {
      html += fmt::format("{}<li><a href=\"#{}\">{}</a>\n<ul>\n", before ? "</ul>\n" : "",
                          group_anchor(section.group), title_of(section.group));
    }
    // What machines a section is of stands in its heading.
    html += fmt::format("<li><a href=\"#{}\">{}</a>\n", section.name,
                        escape_markup(section.title.substr(0, section.title.find(" ("))));
    before = &section;
  }
  return html + "</ul>\n</ul>\n</details>\n</nav>\n";
}

void add_sections(HtmlWriter& writer, const Document& document) {
  const Section* before = nullptr;
  for (const Section& section : document.sections) {
    if (before == nullptr || before->group != section.group) {
      writer.html += fmt::format("<h2 class=\"group\" id=\"{}\">{}</h2>\n", group_anchor(section.group),
                                 title_of(section.group));
    }
    before = &section;
    writer.section_title = section.title;
    // The anchor lies inside, so that browsers open the fold when they go to it.
    writer.html += fmt::format(
        "<details class=\"section\"{}>\n<summary><h3>{}</h3></summary>\n<div class=\"body\" id=\"{}\">\n",
        section.open ? " open" : "", escape_markup(section.title), section.name);
    for (const Block& block : section.blocks) std::visit(writer, block);
    writer.html += "</div>\n</details>\n";
  }
}

}  // namespace

std::string to_html(const Document& whole) {
  const Document document = without_repetition(whole);
  HtmlWriter writer;
  writer.html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n"
      "<style>\n{}{}</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>\n",
      escape_markup(document.title), embedded_file("templates/report.css"),
      embedded_file("templates/figure.css"), escape_markup(document.title));
  writer.has_records = std::ranges::any_of(document.sections,
                                           [](const Section& section) { return section.name == "records"; });
  writer.few = document.sections.size() <= kFewSections;
  const bool first_screen = document.picture || !document.verdicts.empty();
  if (first_screen)
    writer.html += document.picture ? "<div class=\"first\">\n" : "<div class=\"first plain\">\n";
  if (document.picture) writer.add_picture(*document.picture);
  if (first_screen) writer.html += "<div class=\"beside\">\n";
  if (!document.verdicts.empty()) {
    writer.html += "<div class=\"verdicts\">\n";
    for (const Finding& verdict : document.verdicts) writer.add_verdict(verdict);
    writer.html += "</div>\n";
  }
  if (!document.lead.empty())
    writer.html += fmt::format("<p class=\"lead\">{}</p>\n", inline_html(document.lead));
  if (first_screen) writer.html += "</div>\n</div>\n";
  writer.html += "</header>\n<div class=\"page\">\n" + contents_html(document) + "<main>\n";
  add_sections(writer, document);
  // A page's names are its own: each marker stands once for all figures.
  const std::string markers = take_markers(writer.html);
  return writer.html +
         fmt::format(
             "</main>\n</div>\n<svg class=\"fig\" id=\"markers\" aria-hidden=\"true\">\n{}</svg>\n"
             "<script>\n{}</script>\n</body>\n</html>\n",
             markers, embedded_file("templates/report.js"));
}

}  // namespace tilescope
