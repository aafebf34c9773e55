// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/document/generated_text.hpp"

#include <fmt/format.h>

#include "common/errors.hpp"
#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kOpen = "<!-- generated: ";
constexpr std::string_view kOpenEnd = " -->";
constexpr std::string_view kClose = "<!-- /generated -->";

std::string part_of(const std::string& source, const Document& document, std::string_view name,
                    std::string_view figure_folder) {
  if (name == "verdicts") return to_markdown(Block{verdict_table(document)}, figure_folder) + "\n";
  std::vector<std::string> names = {"verdicts"};
  for (const Section& section : document.sections) {
    if (section.name == name) {
      std::string text;
      for (const Block& block : section.blocks) text += to_markdown(block, figure_folder) + "\n";
      return text;
    }
    names.push_back(section.name);
    for (const Block& block : section.blocks) {
      const Figure* figure = std::get_if<Figure>(&block);
      if (figure == nullptr) continue;
      if (figure->name == name) return to_markdown(block, figure_folder) + "\n";
      names.push_back(figure->name);
    }
  }
  throw unknown_name(source + ": generated", name, names);
}

}  // namespace

std::string fill_generated_parts(const std::string& source, std::string_view text, const Document& document,
                                 std::string_view figure_folder) {
  std::string filled;
  for (;;) {
    const std::size_t open = text.find(kOpen);
    if (open == std::string_view::npos) return filled.append(text);
    const std::size_t name_start = open + kOpen.size();
    const std::size_t name_end = text.find(kOpenEnd, name_start);
    const std::size_t close = text.find(kClose, name_start);
    const std::size_t next_open = text.find(kOpen, name_start);
    if (name_end == std::string_view::npos || close == std::string_view::npos || close < name_end ||
        next_open < close) {
      throw BadInput(source, std::string(text.substr(open, 60)),
                     fmt::format("this marker must be closed by {}", kClose));
    }
    const std::string_view name = text.substr(name_start, name_end - name_start);
    filled.append(text.substr(0, name_end + kOpenEnd.size()));
    filled += "\n\n" + part_of(source, document, name, figure_folder);
    filled.append(kClose);
    text.remove_prefix(close + kClose.size());
  }
}

}  // namespace tilescope
