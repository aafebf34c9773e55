// SPDX-License-Identifier: Apache-2.0
// The names that options take, each with what there is to say of it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/records/json_fields.hpp"

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

/// The numbers of a machine, each with its kind and its source. @throws BadInput as load_machine
std::vector<Entry> list_numbers(const std::string& machine);

/// A file that has a list of fields.
struct RecordSchema {
  std::string name;
  Json (*schema)();
  std::string summary;
};
/// @throws UnknownName
const RecordSchema& find_schema(const std::string& name);

/// In the order of their names.
const std::vector<Catalogue>& catalogues();
/// That of the name, or without one that of all catalogues. @throws UnknownName
const Catalogue& find_catalogue(const std::string& name);

}  // namespace tilescope::cli
