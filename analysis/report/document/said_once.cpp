// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/document/said_once.hpp"

#include <algorithm>
#include <set>

namespace tilescope {
namespace {

std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> sentences;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find(". ", begin);
    if (end == std::string::npos) return sentences.push_back(text.substr(begin)), sentences;
    sentences.push_back(text.substr(begin, end + 1 - begin));
    begin = end + 2;
  }
  return sentences;
}

/// What a section has shown so far.
struct Shown {
  std::set<std::string> sentences;
  std::vector<std::string> commands;

  void operator()(Figure& figure) {
    std::string caption;
    for (const std::string& sentence : sentences_of(figure.caption)) {
      const bool first = caption.empty();  // says of what problem the figure is
      if (sentences.insert(sentence).second || first) caption += (first ? "" : " ") + sentence;
    }
    if (!figure.commands.empty() && figure.commands == commands) {
      caption += std::string(caption.empty() ? "" : " ") + "By the same commands.";
      for (Panel& panel : figure.panels) {
        if (panel.commands.empty()) panel.commands = figure.commands;
      }
      figure.commands.clear();
    } else if (!figure.commands.empty()) {
      commands = figure.commands;
    }
    figure.caption = caption;
  }
  void operator()(Table& table) {
    const auto is_heading = [&table](const auto& row) { return row.size() == 1 && table.columns.size() > 1; };
    const auto rows = static_cast<std::size_t>(std::count_if(
        table.rows.begin(), table.rows.end(), [&](const auto& row) { return !is_heading(row); }));
    for (std::size_t column = table.columns.size(); rows > 1 && column-- > 1;) {
      const bool silent = std::all_of(table.rows.begin(), table.rows.end(),
                                      [&](const auto& row) { return is_heading(row) || row[column] == "-"; });
      if (!silent) continue;
      const auto at = static_cast<std::ptrdiff_t>(column);
      table.columns.erase(table.columns.begin() + at);
      for (auto& row : table.rows) {
        if (!is_heading(row)) row.erase(row.begin() + at);
      }
    }
  }
  void operator()(const Paragraph& /*block*/) {}
  void operator()(const Bullets& /*block*/) {}
  void operator()(const CommandLines& /*block*/) {}
};

}  // namespace

Document said_once(Document document) {
  for (Section& section : document.sections) {
    Shown shown;
    for (Block& block : section.blocks) std::visit(shown, block);
  }
  return document;
}

}  // namespace tilescope
