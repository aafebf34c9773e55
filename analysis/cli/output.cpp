// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/output.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/text_table.hpp"
#include "common/nearest_names.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

bool is_silent(const Cell& cell) { return cell.text == "-" || cell.text.empty(); }

std::vector<Row> turned(const std::vector<Row>& rows) {
  std::vector<Row> lines(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) lines[i].push_back(row[i]);
  }
  return lines;
}

/// Without the columns of dashes.
std::vector<Row> told(std::vector<Row> rows) {
  for (std::size_t column = rows.front().size(); column-- > 1;) {
    const auto dash = [column](const Row& row) { return column < row.size() && row[column].text == "-"; };
    if (rows.size() < 2 || !std::all_of(rows.begin() + 1, rows.end(), dash)) continue;
    for (Row& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return rows;
}

/// Columns of numbers.
std::vector<bool> to_the_right(const std::vector<Row>& rows) {
  std::vector<bool> right;
  for (std::size_t column = 0; column < rows.front().size(); ++column) {
    bool numbers = false, words = false;
    for (auto row = rows.begin() + 1; row < rows.end(); ++row) {
      if (column >= row->size()) continue;
      numbers |= (*row)[column].is_number();
      words |= !(*row)[column].is_number() && !is_silent((*row)[column]);
    }
    right.push_back(numbers && !words);
  }
  return right;
}

TextRows texts_of(const std::vector<Row>& rows) {
  TextRows texts;
  for (const Row& row : rows) {
    texts.emplace_back();
    for (const Cell& cell : row) texts.back().push_back(cell.text);
  }
  return texts;
}

std::string with_escapes(const std::string& text,
                         std::initializer_list<std::pair<std::string_view, std::string_view>> escapes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto escape = std::ranges::find_if(
        escapes, [&](const auto& one) { return std::string_view(text).substr(at).starts_with(one.first); });
    out += escape == escapes.end() ? text.substr(at, 1) : std::string(escape->second);
    at += escape == escapes.end() ? 1 : escape->first.size();
  }
  return out;
}

std::string latex(const std::string& text) {
  return with_escapes(text, {{"<->", "$\\leftrightarrow$"},
                             {"<-", "$\\leftarrow$"},
                             {"->", "$\\rightarrow$"},
                             {"\\", "\\textbackslash{}"},
                             {"%", "\\%"},
                             {"&", "\\&"},
                             {"_", "\\_"},
                             {"#", "\\#"},
                             {"$", "\\$"},
                             {"{", "\\{"},
                             {"}", "\\}"},
                             {"^", "\\^{}"},
                             {"~", "\\~{}"},
                             {"<", "$<$"},
                             {">", "$>$"}});
}

/// Rows of cells between two signs, with `rule` below the headings.
std::string lines_of(const std::vector<Row>& rows, std::string_view open, std::string_view between,
                     std::string_view close, const std::string& rule,
                     std::string (*escaped)(const std::string&)) {
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < rows.front().size(); ++i) {
      line += (i == 0 ? "" : std::string(between)) + (i < row.size() ? escaped(row[i].text) : "");
    }
    text += fmt::format("{}{}{}\n", open, line, close) + (&row == &rows.front() ? rule : "");
  }
  return text;
}

/// Without the empty line before it.
std::string title_of(const Table& table) {
  return table.title.substr(std::min(table.title.find_first_not_of('\n'), table.title.size()));
}

std::string folded_title(const Table& table) {
  const std::string title = title_of(table), before(table.title.size() - title.size(), '\n');
  return before + folded_line(title, "  ");
}

std::string as_markdown(const Table& table, const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::string rule = "|";
  for (const bool number : right) rule += number ? "---:|" : "---|";
  const auto escaped = [](const std::string& text) { return with_escapes(text, {{"|", "\\|"}}); };
  return "\n" + (table.title.empty() ? "" : "**" + title_of(table) + "**\n\n") +
         lines_of(rows, "| ", " | ", " |", rule + "\n", escaped) + "\n";
}

std::string as_latex(const Table& table, const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::string columns;
  for (const bool number : right) columns += number ? 'r' : 'l';
  return (table.title.empty() ? "" : "% " + title_of(table) + "\n") + "\\begin{tabular}{" + columns +
         "}\n\\hline\n" + lines_of(rows, "", " & ", " \\\\", "\\hline\n", latex) +
         "\\hline\n\\end{tabular}\n";
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return "\"" + with_escapes(text, {{"\"", "\"\""}}) + "\"";
}

std::string csv_value(const Cell& cell) {
  return cell.is_number() ? cell.exact : cell.text == "-" ? "" : csv_field(cell.text);
}

/// Of the first cell that has one.
std::string unit_of(const std::vector<Row>& rows, std::size_t column) {
  for (auto row = rows.begin() + 1; row < rows.end(); ++row) {
    if (column < row->size() && !(*row)[column].unit.empty()) return " [" + (*row)[column].unit + "]";
  }
  return "";
}

std::string as_csv(const Table& table, std::string& last_heading) {
  std::string heading, before, keys, text;
  for (const auto& [name, cell] : table.keys) {
    heading += csv_field(name + (cell.unit.empty() ? "" : " [" + cell.unit + "]")) + ",";
    keys += csv_value(cell) + ",";
  }
  for (std::size_t i = 0; i < table.rows.front().size(); ++i) {
    std::string name = table.rows.front()[i].text;
    const bool of_the_one_before = name.starts_with("x ") || name.starts_with("/ ");
    if (!of_the_one_before) before = name;
    if (of_the_one_before) name = before + " " + name;
    heading += (i == 0 ? "" : ",") + csv_field(name + unit_of(table.rows, i));
  }
  if (heading != last_heading) text = (last_heading.empty() ? "" : "\n") + heading + "\n";
  last_heading = heading;
  for (auto row = table.rows.begin() + 1; row < table.rows.end(); ++row) {
    text += keys;
    for (std::size_t i = 0; i < table.rows.front().size(); ++i) {
      text += (i == 0 ? "" : ",") + (i < row->size() ? csv_value((*row)[i]) : "");
    }
    text += "\n";
  }
  return text;
}

Cell exact(std::string text, double number, std::string unit) {
  return {std::move(text), fmt::format("{}", number), std::move(unit)};
}

}  // namespace

TableFormat parse_table_format(std::string_view name) {
  constexpr std::pair<std::string_view, TableFormat> kNames[] = {{"text", TableFormat::text},
                                                                 {"markdown", TableFormat::markdown},
                                                                 {"md", TableFormat::markdown},
                                                                 {"csv", TableFormat::csv},
                                                                 {"latex", TableFormat::latex}};
  for (const auto& [known, format] : kNames) {
    if (known == name) return format;
  }
  throw unknown_name("--format", name, {"text", "markdown", "csv", "latex"});
}

Cell in_bytes(std::int64_t bytes) {
  return {format_bytes(static_cast<double>(bytes)), std::to_string(bytes), "B"};
}
Cell in_bytes(double bytes) { return exact(format_bytes(bytes), bytes, "B"); }
Cell in_seconds(double seconds) { return exact(format_seconds(seconds), seconds, "s"); }
Cell in_flops(double flops) { return exact(format_flops(flops), flops, "FLOP"); }
Cell in_flops_per_second(double rate) { return exact(format_flops(rate) + "/s", rate, "FLOP/s"); }
Cell as_ratio(double over, double under) {
  return under > 0 ? exact(format_ratio(over / under), over / under, "") : Cell("-");
}
Cell as_percent(double share, int digits) {
  return exact(fmt::format("{:.{}f} %", 100 * share, digits), share, "");
}
Cell as_count(std::int64_t count) { return {std::to_string(count), std::to_string(count), ""}; }
Cell as_number(std::string text, double number, std::string unit) {
  return exact(std::move(text), number, std::move(unit));
}

std::string Output::text() const {
  std::string all, no_heading;
  for (const auto& piece : pieces_) {
    const auto* const table = std::get_if<Table>(&piece);
    all += table ? to_text(*table, TableFormat::text, no_heading) : std::get<std::string>(piece);
  }
  return all;
}

std::string to_text(const Table& whole, TableFormat format, std::string& last_heading) {
  if (format == TableFormat::csv) return as_csv(with_parts_beside(whole), last_heading);
  const Table table = format == TableFormat::text ? whole : with_parts_in_place(whole);
  const bool is_turned = table.layout == Table::Layout::turned;
  const std::vector<Row> rows = is_turned ? turned(table.rows) : told(table.rows);
  std::vector<bool> right = to_the_right(rows);
  if (is_turned) std::fill(right.begin() + 1, right.end(), true);
  if (format == TableFormat::markdown) return as_markdown(table, rows, right);
  if (format == TableFormat::latex) return as_latex(table, rows, right);
  return (table.title.empty() ? "" : folded_title(table)) +
         (table.layout == Table::Layout::below ? align_below(texts_of(rows), right)
                                               : align_columns(texts_of(rows), table.indent, right));
}

}  // namespace tilescope::cli
