// SPDX-License-Identifier: Apache-2.0
// Names that stand for something, and what a mistyped one was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/errors.hpp"

namespace tilescope {

/// ASCII letters as small ones.
std::string lower_case(std::string_view text);

/// The names closest to `text` (edit distance, prefixes preferred), best first; at most `most`, and none that
/// has little in common with it.
std::vector<std::string> nearest_names(std::string_view text, const std::vector<std::string>& names,
                                       std::size_t most = 3);

/// The error for an unknown name: the field, the name given, its nearest if there are any, and then at most
/// ten of those allowed.
UnknownName unknown_name(const std::string& field, std::string_view text,
                         const std::vector<std::string>& names);

/// The row with that name; each has a member `name`. @throws UnknownName for the field
template <typename Rows>
const auto& find_named(const Rows& rows, const std::string& field, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& row : rows) {
    if (row.name == name) return row;
    names.emplace_back(row.name);
  }
  throw unknown_name(field, name, names);
}

/// The place of `text` among the names, from 0. @throws BadInput  "FIELD = TEXT: must be A, B or C"
std::size_t place_of_name(const std::string& field, std::string_view text,
                          std::span<const std::string_view> names);

/// The value of an enumeration whose names stand in a list in the order of its values.
template <typename Value>
Value value_named(const std::string& field, std::string_view text, std::span<const std::string_view> names) {
  return static_cast<Value>(place_of_name(field, text, names));
}

}  // namespace tilescope
