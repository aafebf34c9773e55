// SPDX-License-Identifier: Apache-2.0
// A record as it is kept in a repository: every array of objects a table (profiler/records/json_tables.hpp),
// and the number of samples in place of the samples. All that readers of records know of it stays.
#pragma once

#include <string>
#include <string_view>

namespace tilescope {

/// @param source what error messages call the text, usually its path
/// @return the same for a text that is compact
/// @throws BadInput if it is no record
std::string compact_record(const std::string& source, std::string_view text);

}  // namespace tilescope
