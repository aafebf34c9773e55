// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/static_accesses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

enum Kind : std::size_t { kLoad, kStore, kAtomic, kCopy, kEngine, kNone };
constexpr std::array<const char*, kNone> kNames = {"load", "store", "atomic", "cp.async", "bulk copy"};

Kind kind_of(const ptx::Instruction& instruction) {
  const std::string_view opcode = instruction.opcode, word = instruction.word();
  if (opcode.starts_with("cp.async.bulk") || opcode.starts_with("cp.reduce.async.bulk")) {
    const bool is_copy = instruction.has("global") && !instruction.has("prefetch");
    return is_copy ? kEngine : kNone;
  }
  if (opcode.starts_with("cp.async.ca") || opcode.starts_with("cp.async.cg")) return kCopy;
  const Reach reach = reach_of(instruction);
  if ((reach != Reach::global && reach != Reach::generic) || instruction.has_any({"const", "async"}))
    return kNone;
  return word == "ld" ? kLoad : word == "st" ? kStore : word == "atom" || word == "red" ? kAtomic : kNone;
}

Kind kind_of_sass(std::string_view opcode) {
  constexpr std::pair<std::string_view, Kind> kOpcodes[] = {
      {"LDG", kLoad},      {"LD", kLoad},        {"STG", kStore},      {"ST", kStore},
      {"ATOMG", kAtomic},  {"ATOM", kAtomic},    {"RED", kAtomic},     {"REDG", kAtomic},
      {"LDGSTS", kCopy},   {"UTMALDG", kEngine}, {"UTMASTG", kEngine}, {"UTMAREDG", kEngine},
      {"UBLKCP", kEngine}, {"UBLKRED", kEngine},
  };
  for (const auto& [name, kind] : kOpcodes) {
    if (opcode == name) return kind;
  }
  return kNone;
}

/// Behind the address `/*0040*/` and a predicate: "LDG" of "LDG.E.128 R4, [R2]"; "" of a line without.
std::string_view opcode_of(std::string_view line) {
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
  return line.substr(0, line.find_first_of(" .;\t"));
}

std::string words(const StaticAccesses& accesses, const StaticAccesses& other) {
  std::vector<std::string> parts;
  for (std::size_t kind = 0; kind < kNone; ++kind) {
    const unsigned count = accesses[kind];
    if (count != other[kind])
      parts.push_back(fmt::format("{} {}{}", count, kNames[kind], count == 1 ? "" : "s"));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::optional<StaticAccesses> accesses_in_ptx(const ptx::Kernel& kernel) {
  if (!kernel.functions.empty()) return std::nullopt;
  StaticAccesses accesses{};
  for (const ptx::Instruction& instruction : kernel.instructions) {
    if (instruction.word() == "wmma") return std::nullopt;
    if (const Kind kind = kind_of(instruction); kind != kNone) ++accesses[kind];
  }
  return accesses;
}

std::optional<StaticAccesses> accesses_in_sass(std::string_view sass, std::string_view kernel) {
  const std::string by_cuobjdump = fmt::format("Function : {}", kernel),
                    by_nvdisasm = fmt::format(".text.{}:", kernel);
  std::optional<StaticAccesses> accesses;
  bool is_in = false;
  while (!sass.empty()) {
    const std::size_t end = std::min(sass.find('\n'), sass.size());
    std::string_view line = sass.substr(0, end);
    sass.remove_prefix(std::min(end + 1, sass.size()));
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.ends_with(by_cuobjdump) || line == by_nvdisasm) {
      is_in = true;
      accesses.emplace();
    } else if (line.find("Function : ") != std::string_view::npos ||
               line.find(".section") != std::string_view::npos) {
      is_in = false;
    } else if (is_in) {
      if (const Kind kind = kind_of_sass(opcode_of(line)); kind != kNone) ++(*accesses)[kind];
    }
  }
  return accesses;
}

std::optional<std::string> difference(const StaticAccesses& ptx, const StaticAccesses& sass) {
  if (ptx == sass) return std::nullopt;
  return fmt::format(
      "ptxas makes {} of {} in the PTX's code: what it unrolls moves the same bytes, what it merges or drops "
      "fewer than "
      "are counted here",
      words(sass, ptx), words(ptx, sass));
}

}  // namespace tilescope::gpu::emulator
