// SPDX-License-Identifier: Apache-2.0
// What the fields of a machine file mean, and the numbers that stand where a datasheet has none.
#pragma once

#include <optional>
#include <string_view>

#include "profiler/records/json_fields.hpp"

namespace tilescope {

/// In one line; empty for a field that explains itself.
std::string_view meaning_of(std::string_view field);

/// A number as a file may have it: 132120576, "126MiB", "8TB/s", "2250TFLOP/s".
std::optional<double> number_in(const Json& value);

/// Whether a file may leave the field out although every machine has it.
bool has_default(std::string_view field);

/// Takes out what is left empty, and puts defaults, of kind kDefaultKind, in the place of what a datasheet
/// does not say. What they are computed from must be there; else they are missing too.
void fill_in_defaults(Json& machine);

}  // namespace tilescope
