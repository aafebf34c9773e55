// SPDX-License-Identifier: Apache-2.0
// The names that options take, each with what there is to say of it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilescope::cli {

struct Entry {
  std::string name;
  std::string detail;   // the exact facts, in a column
  std::string summary;  // one line
  /// Facts with a column each, by its heading, in place of the detail. The same for all entries of a
  /// catalogue.
  std::vector<std::pair<std::string, std::string>> columns = {};
};

struct Catalogue {
  std::string name;
  std::vector<Entry> (*entries)();
  std::string_view summary;
  std::string note = "";  // on the columns of its table
};

/// In the order of their names.
const std::vector<Catalogue>& catalogues();
/// That of the name, or without one that of all catalogues. @throws UnknownName
const Catalogue& find_catalogue(const std::string& name);

}  // namespace tilescope::cli
