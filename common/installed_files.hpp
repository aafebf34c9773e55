// SPDX-License-Identifier: Apache-2.0
// Where the files lie that belong to the program: machine models, scripts, the injected library.
#pragma once

#include <filesystem>
#include <string_view>

namespace tilescope {

/// @param relative as below the prefix of an installation, "share/tilescope/machines"; a build folder is laid
///   out alike, and a Python package too, with its module where the prefix is. Found by the place of the
///   program or shared library that this code is part of, so that all of it can be moved together. Where
///   there is no such file: where it should be, beside the folder of the program.
std::filesystem::path installed_file(std::string_view relative);

}  // namespace tilescope
