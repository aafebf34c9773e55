// SPDX-License-Identifier: Apache-2.0
// What the writers of all formats share.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "analysis/report/document/report_document.hpp"
#include "common/errors.hpp"

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

bool one_of(std::string_view chars, char c) { return chars.find(c) != std::string_view::npos; }

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

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
    const auto rows = static_cast<std::size_t>(
        std::ranges::count_if(table.rows, [&](const auto& row) { return !is_heading(row); }));
    for (std::size_t column = table.columns.size(); rows > 1 && column-- > 1;) {
      const bool silent = std::ranges::all_of(
          table.rows, [&](const auto& row) { return is_heading(row) || row[column] == "-"; });
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

Document without_repetition(Document document) {
  for (Section& section : document.sections) {
    Shown shown;
    for (Block& block : section.blocks) std::visit(shown, block);
  }
  return document;
}

std::vector<std::string> reproduction(const std::vector<std::string>& commands) {
  if (commands.size() == 1) return {commands[0] + " --json run.json", "./tilescope report run.json"};
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    lines.push_back(fmt::format("{} --json run-{}.json", commands[i], i + 1));
  }
  lines.push_back("./tilescope report run-*.json");
  return lines;
}

Table verdict_table(const Document& document) {
  Table table{"", {{"question"}, {"figure", true}, {"verdict"}}, {}};
  for (const Finding& verdict : document.verdicts) {
    table.rows.push_back({verdict.question, "**" + verdict.figures() + "**", verdict.sentence});
  }
  return table;
}

Table glossary_table() {
  Table table{"", {{"word"}, {"means"}}, {}};
  std::istringstream lines{std::string(embedded_file("templates/glossary.txt"))};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bar = line.find(" | ");
    table.rows.push_back({line.substr(0, bar), line.substr(bar + 3)});
  }
  return table;
}

std::string Finding::figures() const {
  std::string text;
  for (const FindingLine& line : lines) {
    text += (text.empty() ? "" : "; ") + (line.of.empty() ? "" : line.of + ": ");
    for (const Amount& amount : line.amounts) {
      if (&amount != &line.amounts.front()) text += ", ";
      text += amount.of.empty() ? amount.value : amount.of + " " + amount.value;
    }
  }
  return text;
}

const char* title_of(SectionGroup group) {
  constexpr const char* titles[kSectionGroups] = {"Bytes", "Model and counters", "Speed",
                                                  "Correctness and the papers",
                                                  "Several GPUs, other kernels, sources"};
  return titles[static_cast<std::size_t>(group)];
}

Document with_section_alone(Document document, std::string_view name) {
  std::vector<std::string> names;
  for (const Section& section : document.sections) names.push_back(section.name);
  if (std::ranges::find(names, name) == names.end()) {
    throw BadInput("--section", std::string(name),
                   names.empty() ? "the records give no section"
                                 : fmt::format("must be one of those that the records give: {}",
                                               fmt::join(names, ", ")));
  }
  std::erase_if(document.sections, [name](const Section& section) { return section.name != name; });
  document.sections.front().open = true;
  document.title = document.sections.front().title;
  document.verdicts.clear();
  document.picture.reset();
  document.lead.clear();
  return document;
}

bool take_until(std::string_view& rest, std::string_view end, std::string_view& taken) {
  const std::size_t at = rest.find(end);
  if (at == std::string_view::npos) return false;
  taken = rest.substr(0, at);
  rest.remove_prefix(at + end.size());
  return true;
}

bool may_link_to(std::string_view address) {
  if (address.starts_with("https://") || address.starts_with("http://")) {
    return address.find_first_of(" \t\n\r<>\"\\`") == std::string_view::npos;
  }
  const auto in_path = [](unsigned char c) {
    return std::isalnum(c) || one_of("#/._-", static_cast<char>(c));
  };
  return !address.empty() && std::ranges::all_of(address, in_path);
}

std::string escape_markup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += is_control(c) && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return escaped;
}

std::string escape_markdown(std::string_view rest) {
  std::string text;
  std::string_view inner, address;
  while (!rest.empty()) {
    const char c = rest.front(), next = rest.size() > 1 ? rest[1] : ' ';
    std::string_view ahead = rest.substr(1);
    const bool letter_next = std::isalpha(static_cast<unsigned char>(next)) != 0;
    if (c == '`' && take_until(ahead, "`", inner)) {
      text +=
          inner.empty() ? "\\`\\`" : fmt::format("`{}`", inner);  // two marks alone would begin a longer one
    } else if (c == '[' && take_until(ahead, "](", inner) && take_until(ahead, ")", address) &&
               may_link_to(address)) {
      text += fmt::format("[{}]({})", escape_markdown(inner), address);
    } else {
      ahead = rest.substr(1);
      if (c == '<' && (letter_next || one_of("/!?", next))) {
        text += "&lt;";
      } else if (c == '&' && (letter_next || next == '#')) {
        text += "&amp;";
      } else {
        if (c == '`' || c == '\\' || (c == ']' && one_of("([:", next))) text += '\\';
        text += c;
      }
    }
    rest = ahead;
  }
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text;
}

std::string caption_text(const Figure& figure) {
  if (figure.panels.size() != 1) return figure.caption;
  const std::string& title = figure.panels.front().title;
  if (title.empty() || figure.caption.find(title) != std::string::npos) return figure.caption;
  return figure.caption.empty() ? title + "." : title + ". " + figure.caption;
}

std::string take_markers(std::string& markup) {
  constexpr std::string_view kBegin = "<marker ", kEnd = "</marker>";
  std::string rest, markers;
  std::size_t from = 0;
  for (std::size_t at; (at = markup.find(kBegin, from)) != std::string::npos;) {
    rest.append(markup, from, at - from);
    from = markup.find(kEnd, at) + kEnd.size();
    const std::string marker = markup.substr(at, from - at) + "\n";
    if (markers.find(marker) == std::string::npos) markers += marker;
  }
  markup = rest.append(markup, from);
  return markers;
}

}  // namespace tilescope
