// SPDX-License-Identifier: Apache-2.0
// What a machine file may hold, as data: names, what is needed, and between which values a number is
// credible.
#pragma once

#include <string>

#include "profiler/records/json_fields.hpp"

namespace tilescope {

/// Refuses a file with a field that nothing reads, with fields missing (all of them in one sentence), or with
/// a number that cannot be in the unit that its field has.
/// @throws BadInput
void require_machine_fields(const std::string& source, const Json& machine);

/// A file with every field that a machine may have and none filled in.
std::string machine_template();

}  // namespace tilescope
