// SPDX-License-Identifier: Apache-2.0
// Text for a terminal: how wide it may be, sentences that are wrapped, columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope::cli {

/// Of the terminal that a file descriptor is; nothing where it is none, or one that does not say.
std::optional<std::size_t> terminal_columns(int file);

/// The same, or where a file descriptor is no terminal $COLUMNS; at least 60.
std::optional<std::size_t> known_columns(int file);

/// Columns that sentences on standard output fit: 100, or those of a narrower terminal, but at least 60.
std::size_t text_width();

/// Columns that tables on standard output fit: the terminal's, elsewhere $COLUMNS, else 100; at least 60.
std::size_t table_width();

/// Lines of a sentence, each with its end, within text_width(); all but the first behind `indent`.
std::string wrapped(const std::string& sentence, const std::string& indent = "");

/// A line with its end, as it is where it fits text_width(), else wrapped.
std::string folded_line(const std::string& line, const std::string& indent);

/// Lines of `text` that are wider than `columns`, folded between words and under their last column. Commands
/// stay whole, for somebody to copy, and so do words.
std::string fitted(std::string_view text, std::size_t columns);

/// "1 run", "2 runs", "3 passes"
std::string counted(std::int64_t count, const std::string& word);

using TextRows = std::vector<std::vector<std::string>>;

/// One line a row, columns two spaces apart, each line behind `indent`. Rows may be of different lengths.
/// Columns marked in `right` are aligned to the right. What is wider than table_width() stands in blocks
/// below each other, each with the first column.
std::string align_columns(const TextRows& rows, const std::string& indent = "",
                          const std::vector<bool>& right = {});

/// The same where a row opens with a text that is too long for a column: each row's first cell stands on a
/// line of its own, the others aligned below it. The first row holds the headings; its first cell is left
/// out.
std::string align_below(const TextRows& rows, const std::vector<bool>& right);

}  // namespace tilescope::cli
