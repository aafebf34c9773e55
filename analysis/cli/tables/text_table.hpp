// SPDX-License-Identifier: Apache-2.0
// Columns of text for a terminal.
#pragma once

#include <string>
#include <vector>

namespace tilescope::cli {

/// One line a row, columns two spaces apart, each line behind `indent`. Rows may be of different lengths.
/// Columns marked in `right` are aligned to the right.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::string& indent = "",
                          const std::vector<bool>& right = {});

}  // namespace tilescope::cli
