// SPDX-License-Identifier: Apache-2.0
// The plot scripts and the style sheet, built into the program so that it can be moved.
#pragma once

#include <string_view>

namespace tilescope {

/// Contents of a file of plots or templates. Precondition: it is one of them.
/// @param path relative to analysis/report/, e.g. "plots/lines.gp"
std::string_view embedded_file(std::string_view path);

}  // namespace tilescope
