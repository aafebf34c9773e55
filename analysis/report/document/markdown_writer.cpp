// SPDX-License-Identifier: Apache-2.0
// Document -> GitHub Markdown, and its parts between the markers of other text files.
#include <fmt/format.h>

#include "analysis/report/document/report_document.hpp"
#include "common/errors.hpp"
#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

/// Inside a table a bar would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : escape_markdown(text)) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// A block of its own, which is no heading, list, quotation or table whatever it begins with.
std::string block_of(std::string_view text) {
  const bool marked =
      !text.empty() && std::string_view("#>-+=~|").find(text.front()) != std::string_view::npos;
  return (marked ? "\\" : "") + escape_markdown(text);
}

/// What closes a block of code: longer than anything of the kind in it.
std::string fence_of(const std::vector<std::string>& lines) {
  std::string fence = "```";
  for (const std::string& line : lines) {
    while (line.find(fence) != std::string::npos) fence += '`';
  }
  return fence;
}

/// Tables with more rows are begun here; the page has all of them.
constexpr std::size_t kMostPrintedRows = 60;

struct MarkdownWriter {
  std::string_view figure_folder;
  std::string text;
  bool few = false;  // so few sections that there is room for long tables

  void operator()(const Paragraph& paragraph) { text += block_of(paragraph.text) + "\n\n"; }

  void operator()(const Bullets& bullets) {
    const bool folded = !bullets.folded_under.empty();
    if (folded)
      text += fmt::format("<details><summary>{}</summary>\n\n", escape_markup(bullets.folded_under));
    for (const std::string& item : bullets.items) text += "- " + block_of(item) + "\n";
    text += folded ? "\n</details>\n\n" : "\n";
  }

  /// More than a few are rarely read, and then copied.
  void operator()(const CommandLines& commands) {
    constexpr std::size_t kMostOpen = 3;
    const bool folded = commands.lines.size() > kMostOpen;
    if (folded) text += fmt::format("<details><summary>{} commands</summary>\n\n", commands.lines.size());
    const std::string fence = fence_of(commands.lines);
    text += fmt::format("{0}\n{1}\n{0}\n\n", fence, fmt::join(commands.lines, "\n"));
    if (folded) text += "</details>\n\n";
  }

  void operator()(const Table& table) {
    if (!table.caption.empty()) text += block_of(table.caption) + "\n\n";
    const bool begun = table.rows.size() > kMostPrintedRows;
    const bool folded = table.rows.size() > kMostOpenRows && !begun;
    if (folded)
      text += fmt::format("<details{}><summary>{} rows</summary>\n\n", few ? " open" : "", table.rows.size());
    const std::size_t printed = begun ? kMostOpenRows : table.rows.size();
    add_table(table, printed);
    text += folded ? "\n</details>\n\n" : "\n";
    if (begun) {
      text += fmt::format("The other {} rows stand in report.html, which `tilescope report` writes too.\n\n",
                          table.rows.size() - printed);
    }
  }

  void add_table(const Table& table, std::size_t rows) {
    for (const Table::Column& column : table.columns) text += "| " + cell(column.header) + " ";
    text += "|\n";
    for (const Table::Column& column : table.columns) text += column.numeric ? "|---:" : "|---";
    text += "|\n";
    for (std::size_t i = 0; i < rows; ++i) add_row(table.rows[i], table.columns.size());
  }

  void add_row(const std::vector<std::string>& row, std::size_t columns) {
    const bool heading = row.size() == 1 && columns > 1;
    for (const std::string& value : row)
      text += heading ? fmt::format("| **{}** ", cell(value)) : fmt::format("| {} ", cell(value));
    for (std::size_t i = row.size(); i < columns; ++i) text += "| ";
    text += "|\n";
  }

  void operator()(const Figure& figure) {
    const std::string title = escape_markdown(figure.title);
    text += fmt::format("![{0}]({1}/{2}.svg)\n\n**{0}{3}** {4}\n\n", title, figure_folder, figure.name,
                        title.ends_with('.') ? "" : ".", escape_markdown(caption_text(figure)));
    if (!figure.commands.empty()) (*this)(CommandLines{reproduction(figure.commands)});
  }
};

/// A line a group.
std::string contents_lines(const Document& document) {
  if (document.sections.size() <= kFewSections) return "";
  std::string text;
  const Section* before = nullptr;
  for (const Section& section : document.sections) {
    const bool first = before == nullptr || before->group != section.group;
    text += first ? fmt::format("{}- **{}**: ", before ? "\n" : "", title_of(section.group)) : ", ";
    text += fmt::format("[{}](#{})", escape_markdown(section.title.substr(0, section.title.find(" ("))),
                        section.name);
    before = &section;
  }
  return text.empty() ? text : text + "\n\n";
}

}  // namespace

std::string to_markdown(const Block& block, std::string_view figure_folder) {
  MarkdownWriter writer{figure_folder, {}};
  std::visit(writer, block);
  writer.text.pop_back();  // one line end of the two
  return writer.text;
}

std::string to_markdown(const Document& whole, std::string_view figure_folder) {
  const Document document = without_repetition(whole);
  MarkdownWriter writer{figure_folder, "# " + escape_markdown(document.title) + "\n\n",
                        document.sections.size() <= kFewSections};
  if (document.picture) writer(*document.picture);
  if (!document.verdicts.empty()) writer(verdict_table(document));
  if (!document.lead.empty()) writer.text += escape_markdown(document.lead) + "\n\n";
  writer.text += contents_lines(document);
  const Section* before = nullptr;
  for (const Section& section : document.sections) {
    if (before == nullptr || before->group != section.group)
      writer.text += fmt::format("## {}\n\n", title_of(section.group));
    before = &section;
    writer.text +=
        fmt::format("<a id=\"{}\"></a>\n\n### {}\n\n", section.name, escape_markdown(section.title));
    for (const Block& block : section.blocks) std::visit(writer, block);
  }
  writer.text.pop_back();
  return writer.text;
}

namespace {

constexpr std::string_view kOpen = "<!-- generated: ";
constexpr std::string_view kOpenEnd = " -->";
constexpr std::string_view kClose = "<!-- /generated -->";

/// Open however long it is.
std::string as_table(const Table& table) {
  MarkdownWriter writer;
  writer.add_table(table, table.rows.size());
  return writer.text + "\n";
}

/// A section that a text opens with, nothing of it folded.
std::string as_open_text(const Section& section, std::string_view figure_folder) {
  std::string text;
  for (const Block& block : section.blocks) {
    const Table* table = std::get_if<Table>(&block);
    text += (table ? as_table(*table) : to_markdown(block, figure_folder) + "\n");
  }
  return text;
}

std::string part_of(const std::string& source, const Document& document, std::string_view name,
                    std::string_view figure_folder) {
  if (name == "verdicts" && document.verdicts.empty()) return "The records give no verdict.\n\n";
  if (name == "verdicts") return to_markdown(Block{verdict_table(document)}, figure_folder) + "\n";
  if (name == "glossary") return as_table(glossary_table());
  std::vector<std::string> names = {"verdicts", "glossary"};
  for (const Section& section : document.for_texts) {
    if (section.name == name) return as_open_text(section, figure_folder);
    names.push_back(section.name);
  }
  if (document.picture && document.picture->name == name)
    return to_markdown(Block{*document.picture}, figure_folder) + "\n";
  if (document.picture) names.push_back(document.picture->name);
  for (const Section& section : document.sections) {
    if (section.name == name) {
      std::string text;
      for (const Block& block : section.blocks) text += to_markdown(block, figure_folder) + "\n";
      return text;
    }
    names.push_back(section.name);
    for (const Block& block : section.blocks) {
      const Figure* figure = std::get_if<Figure>(&block);
      if (figure == nullptr) continue;
      if (figure->name == name) return to_markdown(block, figure_folder) + "\n";
      names.push_back(figure->name);
    }
  }
  throw unknown_name(source + ": generated", name, names);
}

}  // namespace

std::string fill_generated_parts(const std::string& source, std::string_view text, const Document& document,
                                 std::string_view figure_folder) {
  std::string filled;
  for (;;) {
    const std::size_t open = text.find(kOpen);
    if (open == std::string_view::npos) return filled.append(text);
    const std::size_t name_start = open + kOpen.size();
    const std::size_t name_end = text.find(kOpenEnd, name_start);
    const std::size_t close = text.find(kClose, name_start);
    const std::size_t next_open = text.find(kOpen, name_start);
    if (name_end == std::string_view::npos || close == std::string_view::npos || close < name_end ||
        next_open < close) {
      throw BadInput(source, std::string(text.substr(open, 60)),
                     fmt::format("this marker must be closed by {}", kClose));
    }
    const std::string_view name = text.substr(name_start, name_end - name_start);
    filled.append(text.substr(0, name_end + kOpenEnd.size()));
    filled += "\n\n" + part_of(source, document, name, figure_folder);
    filled.append(kClose);
    text.remove_prefix(close + kClose.size());
  }
}

}  // namespace tilescope
