// SPDX-License-Identifier: Apache-2.0
#include "common/nearest_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace tilescope {

std::string lower_case(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

namespace {

/// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view text, const std::vector<std::string>& names,
                                       std::size_t most) {
  constexpr std::size_t kLongestCompared = 64;  // a longer text is no slip of the finger
  if (text.empty() || text.size() > kLongestCompared) return {};
  const std::string small = lower_case(text);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& name : names) {
    const std::string small_name = lower_case(name);
    const bool contains = small.size() >= 3 && small_name.find(small) != std::string::npos;
    const std::size_t distance = contains ? 1 : edit_distance(small, small_name);
    if (distance <= std::max<std::size_t>(2, name.size() / 3)) ranked.emplace_back(distance, name);
  }
  std::ranges::stable_sort(ranked, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i) nearest.push_back(ranked[i].second);
  return nearest;
}

UnknownName unknown_name(const std::string& field, std::string_view text,
                         const std::vector<std::string>& names) {
  constexpr std::size_t kMostListed = 10;
  const std::vector<std::string> nearest = nearest_names(text, names);
  const std::string guess =
      nearest.empty() ? "" : fmt::format("did you mean {}?", fmt::join(nearest, " or "));
  // Ten names of many are no help beside the one that was meant.
  if (!nearest.empty() && names.size() > kMostListed)
    return {field, fmt::format("'{}'", text), guess, nearest};
  const std::size_t listed = std::min(names.size(), kMostListed);
  const std::string others = listed < names.size() ? fmt::format(" or {} more", names.size() - listed) : "";
  return UnknownName(
      field, fmt::format("'{}'", text),
      fmt::format("{}must be one of {}{}", nearest.empty() ? "" : guess + " It ",
                  fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(listed), ", "),
                  others),
      nearest);
}

std::size_t place_of_name(const std::string& field, std::string_view text,
                          std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw BadInput(
      field, std::string(text),
      fmt::format("must be {} or {}", fmt::join(names.first(names.size() - 1), ", "), names.back()));
}

}  // namespace tilescope
