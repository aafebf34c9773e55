// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/parse_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/errors.hpp"
#include "common/quantity.hpp"

namespace tilescope::cli {
namespace {

template <typename Number>
std::optional<Number> read_whole(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

template <typename Number>
Number read_or_refuse(const std::string& field, std::string_view text, const char* allowed) {
  const std::optional<Number> value = read_whole<Number>(text);
  if (!value) throw BadInput(field, "'" + std::string(text) + "'", allowed);
  return *value;
}

/// Two integers with one separator between them.
std::optional<std::pair<std::int64_t, std::int64_t>> read_pair(std::string_view text, char separator) {
  const std::size_t middle = text.find(separator);
  if (middle == std::string_view::npos) return std::nullopt;
  const auto first = read_count(text.substr(0, middle));
  const auto second = read_count(text.substr(middle + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

}  // namespace

std::int64_t parse_integer(const std::string& field, std::string_view text) {
  const std::optional<std::int64_t> value = read_count(text);
  if (!value) {
    throw BadInput(
        field, "'" + std::string(text) + "'",
        "must be an integer below 2^63, as in 4096, or with k (2^10), M (2^20) or G (2^30), as in 4k and 1M");
  }
  return *value;
}

namespace {

std::int64_t require_in(const std::string& field, std::string_view text, std::int64_t value,
                        std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw BadInput(field, std::string(text),
                   most == kAnyCount ? fmt::format("must be at least {}", least)
                                     : fmt::format("must lie in {} ... {}", least, most));
  }
  return value;
}

}  // namespace

std::int64_t parse_integer_in(const std::string& field, std::string_view text, std::int64_t least,
                              std::int64_t most) {
  return require_in(field, text, parse_integer(field, text), least, most);
}

std::int64_t parse_bytes_in(const std::string& field, std::string_view text, std::int64_t least,
                            std::int64_t most) {
  const std::optional<std::int64_t> value = read_bytes(text);
  if (!value) {
    throw BadInput(field, "'" + std::string(text) + "'",
                   "must be bytes, as in 52428800, 50MB (10^6) or 32MiB (2^20)");
  }
  return require_in(field, text, *value, least, most);
}

std::uint64_t parse_unsigned(const std::string& field, std::string_view text) {
  return read_or_refuse<std::uint64_t>(field, text, "must be an integer in 0 ... 2^64 - 1");
}

double parse_number(const std::string& field, std::string_view text) {
  return read_or_refuse<double>(field, text, "must be a number");
}

bool parse_yes(const std::string& field, std::string_view text) {
  if (text == "yes" || text == "1" || text == "true") return true;
  if (text == "no" || text == "0" || text == "false") return false;
  throw BadInput(field, "'" + std::string(text) + "'", "must be yes or no");
}

TileShape parse_tile(const std::string& field, std::string_view text) {
  const auto sides = read_pair(text, 'x');
  const auto bad = [](std::int64_t rows) { return rows < 1 || rows > 4096; };
  if (!sides || bad(sides->first) || bad(sides->second)) {
    throw BadInput(field, "'" + std::string(text) + "'",
                   "must be block_m x block_n as in 128x64, both sides in 1 ... 4096");
  }
  return {static_cast<int>(sides->first), static_cast<int>(sides->second)};
}

std::pair<std::int64_t, std::int64_t> parse_window(const std::string& field, std::string_view text) {
  const auto sides = read_pair(text, ',');
  if (!sides) {
    throw BadInput(field, "'" + std::string(text) + "'",
                   "must be two integers LEFT,RIGHT; -1 means no limit");
  }
  return *sides;
}

std::vector<std::string> words_of_list(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::vector<std::int64_t> parse_integers(const std::string& field, std::string_view text) {
  std::vector<std::int64_t> values;
  for (const std::string& word : words_of_list(text)) values.push_back(parse_integer(field, word));
  return values;
}

ElementType parse_dtype(std::string_view text) {
  constexpr std::pair<std::string_view, ElementType> kOtherNames[] = {
      {"float32", ElementType::fp32},        {"float16", ElementType::fp16},
      {"bfloat16", ElementType::bf16},       {"float8_e4m3fn", ElementType::fp8e4m3},
      {"float8_e5m2", ElementType::fp8e5m2},
  };
  for (const auto& [name, type] : kOtherNames) {
    if (name == text) return type;
  }
  return parse_element_type(text);
}

}  // namespace tilescope::cli
