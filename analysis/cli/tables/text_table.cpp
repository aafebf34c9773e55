// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope::cli {

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

}  // namespace tilescope::cli
