// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/sass_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tilescope::gpu::emulator {
namespace {

/// Behind the address and a predicate; an empty opcode of a line without.
SassLine split(std::string_view line) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos || line.substr(begin, 2) != "/*") return {};
  const std::size_t behind = line.find("*/", begin);
  if (behind == std::string_view::npos) return {};
  line.remove_prefix(behind + 2);
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  if (line.starts_with('@')) {
    line.remove_prefix(std::min(line.find_first_of(kBlanks), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  }
  const std::size_t end = std::min(line.find_first_of(" .;\t"), line.size());
  const std::size_t comment = std::min(line.find("/*"), line.size());
  return {line.substr(0, end), line.substr(end, std::max(comment, end) - end)};
}

}  // namespace

bool for_sass_lines(std::string_view sass, std::string_view kernel,
                    const std::function<void(const SassLine&)>& f) {
  const std::string by_cuobjdump = fmt::format("Function : {}", kernel),
                    by_nvdisasm = fmt::format(".text.{}:", kernel);
  bool is_there = false, is_in = false;
  while (!sass.empty()) {
    const std::size_t end = std::min(sass.find('\n'), sass.size());
    std::string_view line = sass.substr(0, end);
    sass.remove_prefix(std::min(end + 1, sass.size()));
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.ends_with(by_cuobjdump) || line == by_nvdisasm) {
      is_in = is_there = true;
    } else if (line.find("Function : ") != std::string_view::npos ||
               line.find(".section") != std::string_view::npos) {
      is_in = false;
    } else if (is_in) {
      if (const SassLine parts = split(line); !parts.opcode.empty()) f(parts);
    }
  }
  return is_there;
}

}  // namespace tilescope::gpu::emulator
