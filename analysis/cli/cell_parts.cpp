// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/cell_parts.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <sstream>

namespace tilescope::cli {
namespace {

Cell cell_of(const CellPart& part) { return {part.text, part.number ? part.text : "", ""}; }

bool has_parts(const Row& row, std::size_t column) {
  return column < row.size() && !row[column].parts.empty();
}

/// The rows below the headings.
std::span<Row> body(Table& table) { return std::span(table.rows).subspan(1); }

/// Those of the first row that has some: the others' have the same names.
std::vector<CellPart> parts_of(std::span<const Row> rows, std::size_t column) {
  const auto named = std::ranges::find_if(rows, [&](const Row& row) { return has_parts(row, column); });
  return named == rows.end() ? std::vector<CellPart>{} : (*named)[column].parts;
}

void insert_cells(Row& row, std::size_t at, const Row& cells) {
  row.resize(std::max(row.size(), at), "");
  row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), cells.begin(), cells.end());
}

void add_beside(Table& table, std::size_t column) {
  Row headings;
  for (const CellPart& part : parts_of(table.rows, column)) headings.emplace_back(part.field);
  if (headings.empty()) return;
  for (Row& row : body(table)) {
    Row cells(headings.size(), "");
    if (has_parts(row, column)) std::ranges::transform(row[column].parts, cells.begin(), cell_of);
    insert_cells(row, column + 1, cells);
  }
  insert_cells(table.rows.front(), column + 1, headings);
}

/// The indices of the parts that differ between rows that have some, each otherwise than those before it.
std::vector<std::size_t> telling_parts(std::span<const Row> rows, std::size_t column) {
  std::vector<std::vector<std::string>> texts;  // of each part
  for (const Row& row : rows) {
    if (!has_parts(row, column)) continue;
    texts.resize(row[column].parts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i].push_back(row[column].parts[i].text);
  }
  std::vector<std::size_t> telling;
  std::set<std::vector<std::string>> told;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool differs = std::ranges::adjacent_find(texts[i], std::not_equal_to()) != texts[i].end();
    if (differs && told.insert(texts[i]).second) telling.push_back(i);
  }
  return telling;
}

/// Whether all rows have parts, and those whose parts are the same have the same words.
bool tell_all(std::span<const Row> rows, std::size_t column, const std::vector<std::size_t>& telling) {
  std::map<std::string, std::string> words;
  return std::ranges::all_of(rows, [&](const Row& row) {
    if (!has_parts(row, column)) return false;
    std::string parts;
    for (const std::size_t i : telling) parts += row[column].parts[i].text + "\n";
    return words.try_emplace(parts, row[column].text).first->second == row[column].text;
  });
}

/// "B1 H4 D64 fp32": the words of the first row that all rows have, before a colon.
std::string shared_words(std::span<const Row> rows, std::size_t column) {
  std::string shared;
  const auto named = [column](const Row& row) {
    return " " + row[column].text.substr(0, row[column].text.find(": ")) + " ";
  };
  std::istringstream words(named(rows.front()));
  for (std::string word; words >> word;) {
    const bool in_all = std::ranges::all_of(
        rows, [&](const Row& row) { return named(row).find(" " + word + " ") != std::string::npos; });
    if (in_all) shared += (shared.empty() ? "" : " ") + word;
  }
  return shared;
}

/// The parts that differ, beside the column and, where they tell all that it does, in its place.
void put_in_place(Table& table, std::size_t column) {
  const std::span<Row> rows = body(table);
  const std::vector<std::size_t> telling = telling_parts(rows, column);
  if (telling.empty()) return;
  const bool in_place = tell_all(rows, column, telling);
  const std::string shared = in_place ? shared_words(rows, column) : "";
  if (!shared.empty()) table.title += (table.title.empty() ? "" : ": ") + shared;
  const std::vector<CellPart> names = parts_of(rows, column);
  for (Row& row : table.rows) {
    Row cells;
    for (const std::size_t i : telling) {
      cells.push_back(&row == &table.rows.front() ? Cell(names[i].symbol)
                      : has_parts(row, column)    ? cell_of(row[column].parts[i])
                                                  : Cell("-"));
    }
    insert_cells(row, column + 1, cells);
    if (in_place) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

CellPart number_part(const char* field, const char* symbol, std::int64_t number) {
  return {field, symbol, std::to_string(number), true};
}

}  // namespace

Cell as_problem(const AttentionProblem& problem) {
  Cell cell(describe(problem));
  cell.parts = {number_part("batch", "B", problem.batch),
                number_part("heads", "H", problem.heads),
                number_part("heads_kv", "Hkv", problem.heads_kv),
                number_part("seqlen_q", "N", problem.seqlen_q),
                number_part("seqlen_k", "Nk", problem.seqlen_k),
                number_part("head_dim", "D", problem.head_dim),
                {"dtype", "type", std::string(to_string(problem.dtype))},
                {"causal", "causal", problem.causal ? "yes" : "no"}};
  return cell;
}

Table with_parts_beside(Table table) {
  for (std::size_t column = table.rows.front().size(); column-- > 0;) add_beside(table, column);
  std::vector<std::pair<std::string, Cell>> keys;
  for (auto& [name, cell] : table.keys) {
    keys.emplace_back(name, cell);
    for (const CellPart& part : cell.parts) keys.emplace_back(part.field, cell_of(part));
  }
  table.keys = std::move(keys);
  return table;
}

Table with_parts_in_place(Table table) {
  if (table.rows.size() < 2) return table;
  for (std::size_t column = table.rows.front().size(); column-- > 0;) put_in_place(table, column);
  return table;
}

}  // namespace tilescope::cli
