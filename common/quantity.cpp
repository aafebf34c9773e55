// SPDX-License-Identifier: Apache-2.0
#include "common/quantity.hpp"

#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

namespace tilescope {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
  std::string_view unit;
};

constexpr Suffix kCounts[] = {{"k", 0x1p10, ""}, {"K", 0x1p10, ""}, {"ki", 0x1p10, ""}, {"Ki", 0x1p10, ""},
                              {"m", 0x1p20, ""}, {"M", 0x1p20, ""}, {"mi", 0x1p20, ""}, {"Mi", 0x1p20, ""},
                              {"g", 0x1p30, ""}, {"G", 0x1p30, ""}, {"gi", 0x1p30, ""}, {"Gi", 0x1p30, ""}};
constexpr Suffix kBytes[] = {{"B", 1, "B"},        {"kB", 1e3, "B"},     {"KB", 1e3, "B"},
                             {"MB", 1e6, "B"},     {"GB", 1e9, "B"},     {"TB", 1e12, "B"},
                             {"KiB", 0x1p10, "B"}, {"MiB", 0x1p20, "B"}, {"GiB", 0x1p30, "B"},
                             {"TiB", 0x1p40, "B"}};
constexpr Suffix kOthers[] = {{"s", 1, "s"},          {"ms", 1e-3, "s"},      {"us", 1e-6, "s"},
                              {"ns", 1e-9, "s"},      {"FLOP", 1, "FLOP"},    {"MFLOP", 1e6, "FLOP"},
                              {"GFLOP", 1e9, "FLOP"}, {"TFLOP", 1e12, "FLOP"}};

/// A number, perhaps a space, and one of `suffixes`.
std::optional<Quantity> read_suffixed(std::string_view text, std::span<const Suffix> suffixes) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  std::string_view rest(stopped, static_cast<std::size_t>(end - stopped));
  if (rest.size() > 1 && rest.starts_with(' ')) rest.remove_prefix(1);
  for (const Suffix& suffix : suffixes) {
    if (rest == suffix.text) return Quantity{value * suffix.factor, suffix.unit};
  }
  return std::nullopt;
}

std::optional<std::int64_t> read_whole(std::string_view text, std::span<const Suffix> suffixes) {
  std::int64_t plain = 0;  // every one of its 63 bits counts
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, plain);
  if (error == std::errc() && stopped == end) return plain;
  const std::optional<Quantity> quantity = read_suffixed(text, suffixes);
  constexpr double kMost = 0x1p62;
  if (!quantity || !(std::abs(quantity->value) <= kMost) || quantity->value != std::floor(quantity->value)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(quantity->value);
}

}  // namespace

std::optional<std::int64_t> read_count(std::string_view text) { return read_whole(text, kCounts); }

std::optional<std::int64_t> read_bytes(std::string_view text) { return read_whole(text, kBytes); }

std::optional<Quantity> read_quantity(std::string_view text) {
  constexpr Suffix kNone[] = {{"", 1, ""}};
  for (const std::span<const Suffix> suffixes : {std::span<const Suffix>(kNone), {kBytes}, {kOthers}}) {
    if (const auto quantity = read_suffixed(text, suffixes)) return quantity;
  }
  return std::nullopt;
}

}  // namespace tilescope
