// SPDX-License-Identifier: Apache-2.0
// The kinds of JSON files that the program writes: who writes each, and who takes it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "profiler/records/json_fields.hpp"

namespace tilescope {

/// The schema of a file, which must be one of those wanted.
/// @throws BadInput that says which command writes what is wanted, what the file is instead, and what takes
/// it
std::string require_kind(const std::string& source, const Json& json,
                         std::initializer_list<std::string_view> wanted);

/// @throws BadInput where a file that should describe a machine is a record
void refuse_records(const std::string& source, const Json& json);

}  // namespace tilescope
