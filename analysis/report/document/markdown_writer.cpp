// SPDX-License-Identifier: Apache-2.0
// Document -> GitHub Markdown.
#include <fmt/format.h>

#include "analysis/report/document/report_document.hpp"

namespace tilescope {
namespace {

/// Inline text is Markdown already; inside a table a bar would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

struct MarkdownWriter {
  std::string_view figure_folder;
  std::string text;

  void operator()(const Paragraph& paragraph) { text += paragraph.text + "\n\n"; }

  void operator()(const Bullets& bullets) {
    for (const std::string& item : bullets.items) text += "- " + item + "\n";
    text += "\n";
  }

  /// More than a few are rarely read, and then copied.
  void operator()(const CommandLines& commands) {
    constexpr std::size_t kMostOpen = 3;
    const bool folded = commands.lines.size() > kMostOpen;
    if (folded) text += fmt::format("<details><summary>{} commands</summary>\n\n", commands.lines.size());
    text += fmt::format("```\n{}\n```\n\n", fmt::join(commands.lines, "\n"));
    if (folded) text += "</details>\n\n";
  }

  void operator()(const Table& table) {
    if (!table.caption.empty()) text += table.caption + "\n\n";
    const bool folded = table.rows.size() > kMostOpenRows;
    if (folded) text += fmt::format("<details><summary>{} rows</summary>\n\n", table.rows.size());
    for (const Table::Column& column : table.columns) text += "| " + cell(column.header) + " ";
    text += "|\n";
    for (const Table::Column& column : table.columns) text += column.numeric ? "|---:" : "|---";
    text += "|\n";
    for (const auto& row : table.rows) {
      const bool heading = row.size() == 1 && table.columns.size() > 1;
      for (const std::string& value : row)
        text += heading ? fmt::format("| **{}** ", cell(value)) : fmt::format("| {} ", cell(value));
      for (std::size_t i = row.size(); i < table.columns.size(); ++i) text += "| ";
      text += "|\n";
    }
    text += folded ? "\n</details>\n\n" : "\n";
  }

  void operator()(const Figure& figure) {
    text += fmt::format("![{}]({}/{}.svg)\n\n**{}** {}\n\n", figure.title, figure_folder, figure.name,
                        figure.title, figure.caption);
    if (!figure.commands.empty()) (*this)(CommandLines{reproduction(figure.commands)});
  }
};

}  // namespace

std::vector<std::string> reproduction(const std::vector<std::string>& commands) {
  if (commands.size() == 1) return {commands[0] + " --json run.json", "./tilescope report run.json"};
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    lines.push_back(fmt::format("{} --json run-{}.json", commands[i], i + 1));
  }
  lines.push_back("./tilescope report run-*.json");
  return lines;
}

std::string to_markdown(const Block& block, std::string_view figure_folder) {
  MarkdownWriter writer{figure_folder, {}};
  std::visit(writer, block);
  writer.text.pop_back();  // one line end of the two
  return writer.text;
}

std::string to_markdown(const Document& document, std::string_view figure_folder) {
  MarkdownWriter writer{figure_folder, "# " + document.title + "\n\n"};
  if (!document.verdicts.empty()) {
    Table table{"", {{"question"}, {"figure", true}, {"verdict"}}, {}};
    for (const Finding& verdict : document.verdicts) {
      table.rows.push_back({verdict.question, "**" + verdict.number + "**", verdict.sentence});
    }
    writer(table);
  }
  writer.text += document.lead + "\n\n";
  for (const Section& section : document.sections) {
    writer.text += "## " + section.title + "\n\n";
    for (const Block& block : section.blocks) std::visit(writer, block);
  }
  writer.text.pop_back();
  return writer.text;
}

}  // namespace tilescope
