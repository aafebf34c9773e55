// SPDX-License-Identifier: Apache-2.0
// What a mistyped name was probably meant to be.
#pragma once

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

}  // namespace tilescope
