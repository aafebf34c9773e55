// SPDX-License-Identifier: Apache-2.0
// What a command prints: sentences and tables, and the formats that a table can have for other tools.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tilescope::cli {

enum class TableFormat : std::uint8_t { text, markdown, csv, latex };

/// @throws UnknownName
TableFormat parse_table_format(std::string_view name);

/// One of the things that a cell's words name together.
struct CellPart {
  std::string field, symbol;  // its heading for programs and for people: "seqlen_q", "N"
  std::string text;
  bool number = false;
};

/// As people read it and, of a number, as programs do: with all its digits, in `unit`.
struct Cell {
  std::string text, exact, unit;
  std::vector<CellPart> parts = {};  // of a problem; see cell_parts.hpp

  template <std::convertible_to<std::string_view> Text>
  Cell(const Text& words) : text(std::string_view(words)) {}  // NOLINT: a row is a list of texts and numbers
  Cell(std::string words, std::string number, std::string of) noexcept
      : text(std::move(words)), exact(std::move(number)), unit(std::move(of)) {}
  bool is_number() const { return !exact.empty(); }
};

Cell in_bytes(std::int64_t bytes);
Cell in_bytes(double bytes);
Cell in_seconds(double seconds);
Cell in_flops(double flops);
Cell in_flops_per_second(double rate);
/// "4.36x"; a dash where `under` is 0.
Cell as_ratio(double over, double under);
/// "12.3 %" of a share of 0.123, which is what programs get.
Cell as_percent(double share, int digits = 1);
Cell as_count(std::int64_t count);
/// A number as `text` shows it.
Cell as_number(std::string text, double number, std::string unit = "");

using Row = std::vector<Cell>;

struct Table {
  enum class Layout : std::uint8_t {
    columns,
    below,  // the first cell of a row on a line of its own, the others below it
    turned  // a line for each column: its heading, and the cell of each row
  };

  std::vector<Row> rows = {};  // the first holds the headings; one that opens with "x " or "/ " is of the
                               // column before it
  std::string indent = "", title = "";  // the title is a line above
  /// What the title says of all rows: columns of CSV.
  std::vector<std::pair<std::string, Cell>> keys = {};
  Layout layout = Layout::columns;
};

/// Sentences, lines with their ends, and tables, in the order in which they stand.
class Output {
 public:
  Output() = default;
  template <std::convertible_to<std::string_view> Text>
  Output(const Text& text) : pieces_{std::string(std::string_view(text))} {}  // NOLINT
  Output(Table table) : pieces_{std::move(table)} {}                          // NOLINT

  Output& operator+=(const Output& more) {
    pieces_.insert(pieces_.end(), more.pieces_.begin(), more.pieces_.end());
    return *this;
  }
  friend Output operator+(Output one, const Output& other) { return std::move(one += other); }

  const std::vector<std::variant<std::string, Table>>& pieces() const { return pieces_; }
  bool empty() const { return pieces_.empty(); }
  /// All of it as people read it.
  std::string text() const;

 private:
  std::vector<std::variant<std::string, Table>> pieces_;
};

/// As text it fits table_width(), without columns that hold nothing but dashes. CSV has the exact numbers,
/// and their units in the headings. Cells that have parts are told by these, see cell_parts.hpp.
/// @param last_heading of CSV: that of the table before, which is not said again, so that tables of the same
/// columns are one
std::string to_text(const Table& table, TableFormat format, std::string& last_heading);

}  // namespace tilescope::cli
