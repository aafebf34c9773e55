// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/text_table.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "common/wrap_words.hpp"

namespace tilescope::cli {
namespace {

constexpr std::size_t kUsual = 100, kLeast = 60;

/// A command on a line of its own.
bool is_command(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const bool opens =
      line.starts_with("tilescope ") || line.starts_with("./tilescope ") || line.starts_with("$ ");
  return opens && line.find("  ") == std::string_view::npos;
}

}  // namespace

std::optional<std::size_t> terminal_columns(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col <= 1) return std::nullopt;
  return size.ws_col;
}

std::optional<std::size_t> known_columns(int file) {
  std::optional<std::size_t> columns = terminal_columns(file);
  if (const char* const asked = std::getenv("COLUMNS"); !columns && asked != nullptr) {
    if (const std::size_t number = std::strtoul(asked, nullptr, 10); number > 0) columns = number;
  }
  if (columns) columns = std::max(*columns, kLeast);
  return columns;
}

std::size_t text_width() { return std::min(table_width(), kUsual); }

std::size_t table_width() { return known_columns(STDOUT_FILENO).value_or(kUsual); }

std::string wrapped(const std::string& sentence, const std::string& indent) {
  std::string lines;
  for (const std::string& line : wrap_words(sentence, text_width() - indent.size())) {
    lines += (lines.empty() ? "" : indent) + line + "\n";
  }
  return lines;
}

std::string folded_line(const std::string& line, const std::string& indent) {
  return line.size() <= text_width() ? line + "\n" : wrapped(line, indent);
}

std::string fitted(std::string_view text, std::size_t columns) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    const std::size_t begins = std::min(line.find_first_not_of(' '), line.size());
    std::size_t under = line.rfind("  ");  // where the last column begins
    under = under == std::string::npos || under + 2 <= begins || 2 * under > columns ? begins + 2 : under + 2;
    const bool whole = is_command(line);
    while (line.size() > columns && !whole) {
      std::size_t at = line.rfind(' ', columns);
      if (at == std::string::npos || at < line.find_first_not_of(' ')) at = line.find(' ', columns);
      const std::size_t next = line.find_first_not_of(' ', at);
      if (next == std::string::npos) break;
      out += line.substr(0, line.find_last_not_of(' ', at) + 1) + "\n";
      line = std::string(under, ' ') + line.substr(next);
    }
    out += line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return out;
}

std::string counted(std::int64_t count, const std::string& word) {
  const char* ending = count == 1 ? "" : word.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", count, word, ending);
}

namespace {

std::vector<std::size_t> widths_of(const TextRows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

/// How many of the first columns tell the rows apart, for the parts of a wide table to repeat; 1 where those
/// would take more than seven tenths of a line.
std::size_t naming_columns(const TextRows& rows, const std::vector<std::size_t>& widths, std::size_t most) {
  std::size_t width = 0;
  for (std::size_t count = 1; count <= widths.size(); ++count) {
    width += widths[count - 1] + 2;
    if (10 * width > 7 * most) break;
    std::set<std::vector<std::string>> names;
    for (const auto& row : rows)
      names.emplace(row.begin(), row.begin() + std::ptrdiff_t(std::min(count, row.size())));
    if (names.size() == rows.size()) return count;
  }
  return 1;
}

/// The first `names` columns, and those from `first` up to `last`.
std::string block(const TextRows& rows, const std::vector<std::size_t>& widths, std::size_t names,
                  std::size_t first, std::size_t last, const std::string& indent,
                  const std::vector<bool>& right) {
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    const auto add = [&](std::size_t i) {
      if (i >= row.size()) return;
      if (i > 0) line += "  ";
      const bool to_the_right = i < right.size() && right[i];
      line +=
          to_the_right ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    };
    for (std::size_t i = 0; i < names; ++i) add(i);
    for (std::size_t i = first; i < last; ++i) add(i);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

std::string align_columns(const TextRows& rows, const std::string& indent, const std::vector<bool>& right) {
  const std::vector<std::size_t> widths = widths_of(rows);
  const std::size_t most = table_width(), names = naming_columns(rows, widths, most);
  std::string text;
  for (std::size_t first = names, last = names; first <= widths.size() && last <= widths.size();
       first = last) {
    std::size_t width = indent.size() + 2 * (names - 1);
    for (std::size_t i = 0; i < std::min(names, widths.size()); ++i) width += widths[i];
    do {
      width += last < widths.size() ? 2 + widths[last] : 0;
      ++last;
    } while (last < widths.size() && width + 2 + widths[last] <= most);
    text += (text.empty() ? "" : "\n") + block(rows, widths, names, first, last, indent, right);
    if (last >= widths.size()) break;
  }
  return text;
}

std::string align_below(const TextRows& rows, const std::vector<bool>& right) {
  TextRows numbers;
  for (const auto& row : rows) numbers.emplace_back(row.begin() + 1, row.end());
  const std::vector<bool> right_of_numbers(right.begin() + 1, right.end());
  const std::vector<std::size_t> widths = widths_of(numbers);
  const std::string aligned = block(numbers, widths, 1, 1, widths.size(), "  ", right_of_numbers);
  std::string text;
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t end = aligned.find('\n', at) + 1;
    if (i > 0) text += rows[i].front() + "\n";
    text += aligned.substr(at, end - at);
    at = end;
  }
  return text;
}

}  // namespace tilescope::cli
