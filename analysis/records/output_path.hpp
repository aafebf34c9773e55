// SPDX-License-Identifier: Apache-2.0
// Finding out before long work whether its results can be written.
#pragma once

#include <string>

namespace tilescope {

/// Nothing is left behind and nothing that is there is touched.
/// @param field the option that named the path, for the message
/// @throws BadInput saying why no file could be written to `path`
void require_writable_file(const std::string& field, const std::string& path);

/// Creates `path` and its parents where missing.
/// @throws BadInput saying why no file could be made in it
void require_writable_folder(const std::string& field, const std::string& path);

}  // namespace tilescope
