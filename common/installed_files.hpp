// SPDX-License-Identifier: Apache-2.0
// Where the files lie that belong to the program: machine models, scripts, the injected library.
#pragma once

#include <filesystem>
#include <string_view>

namespace tilescope {

/// @param relative as below the prefix of an installation, "share/tilescope/machines"; a build folder is laid
///   out alike. Found by the place of the running program, so that all of it can be moved together.
std::filesystem::path installed_file(std::string_view relative);

}  // namespace tilescope
