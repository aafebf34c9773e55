// SPDX-License-Identifier: Apache-2.0
// Output files that are either complete or not there.
#pragma once

#include <string>
#include <string_view>

namespace tilescope {

/// Writes `content` to `path` through a temporary file beside it, so that no reader ever sees half of it and
/// a failed write leaves what was there before. "-" is standard output; devices and pipes are written
/// directly.
/// @param field names the option or field that the path came from, for the error message
/// @throws BadInput if the file cannot be written
void write_file_atomically(const std::string& field, const std::string& path, std::string_view content);

}  // namespace tilescope
