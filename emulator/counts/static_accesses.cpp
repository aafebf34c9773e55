// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/static_accesses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "emulator/counts/sass_lines.hpp"
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
  StaticAccesses accesses{};
  const bool is_there = for_sass_lines(sass, kernel, [&](const SassLine& line) {
    if (const Kind kind = kind_of_sass(line.opcode); kind != kNone) ++accesses[kind];
  });
  return is_there ? std::optional(accesses) : std::nullopt;
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
