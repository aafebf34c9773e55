// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/text_table.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace tilescope::cli {
namespace {

constexpr std::size_t kUsual = 100, kLeast = 60;

}  // namespace

std::optional<std::size_t> terminal_columns(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col <= 1) return std::nullopt;
  return size.ws_col;
}

std::size_t text_width() { return std::min(table_width(), kUsual); }

std::size_t table_width() { return std::max(terminal_columns(STDOUT_FILENO).value_or(kUsual), kLeast); }

std::vector<std::string> wrap_words(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string wrapped(const std::string& sentence) {
  std::string lines;
  for (const std::string& line : wrap_words(sentence, text_width())) lines += line + "\n";
  return lines;
}

std::string counted(std::int64_t count, const std::string& word) {
  const char* ending = count == 1 ? "" : word.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", count, word, ending);
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                          const std::vector<bool>& right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool to_the_right = i < right.size() && right[i];
      if (i > 0) line += "  ";
      line +=
          to_the_right ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string align_told_columns(std::vector<std::vector<std::string>> rows, const std::string& indent,
                               std::vector<bool> right) {
  for (std::size_t column = right.size(); column-- > 0;) {
    const auto silent = [column](const auto& row) { return row.at(column) == "-"; };
    if (rows.size() < 2 || !std::all_of(rows.begin() + 1, rows.end(), silent)) continue;
    const auto at = static_cast<std::ptrdiff_t>(column);
    for (std::vector<std::string>& row : rows) row.erase(row.begin() + at);
    right.erase(right.begin() + at);
  }
  return align_columns(rows, indent, right);
}

std::string fold_columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                         bool right) {
  const auto widest = [&rows](std::size_t column) {
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, column < row.size() ? row[column].size() : 0);
    return width;
  };
  const std::size_t most = table_width();
  std::size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  std::string text;
  for (std::size_t first = 1; first < columns;) {
    std::size_t width = indent.size() + widest(0), last = first;
    do {
      width += 2 + widest(last++);
    } while (last < columns && width + 2 + widest(last) <= most);
    std::vector<std::vector<std::string>> block;
    for (const auto& row : rows) {
      block.push_back({row.front()});
      for (std::size_t i = first; i < std::min(last, row.size()); ++i) block.back().push_back(row[i]);
    }
    std::vector<bool> to_the_right(last - first + 1, right);
    to_the_right[0] = false;
    text += (text.empty() ? "" : "\n") + align_columns(block, indent, to_the_right);
    first = last;
  }
  return text;
}

std::string align_below(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> numbers;
  for (const auto& row : rows) numbers.emplace_back(row.begin() + 1, row.end());
  const std::string aligned = align_columns(numbers, "  ", std::vector<bool>(rows.front().size(), true));
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
