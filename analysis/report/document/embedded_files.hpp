// SPDX-License-Identifier: Apache-2.0
// The style sheets and the script of a page, built into the program so that it can be moved.
#pragma once

#include <string_view>

namespace tilescope {

/// Contents of a file of templates. Precondition: it is one of them.
/// @param path relative to analysis/report/, e.g. "templates/report.css"
std::string_view embedded_file(std::string_view path);

}  // namespace tilescope
