// SPDX-License-Identifier: Apache-2.0
// How wide what is printed may be.
#pragma once

#include <cstddef>
#include <optional>

namespace tilescope::cli {

/// Of the terminal that a file descriptor is; nothing where it is none, or one that does not say.
std::optional<std::size_t> terminal_columns(int file);

/// Columns that sentences on standard output fit: 100, or those of a narrower terminal, but at least 60.
std::size_t text_width();

/// Columns that tables on standard output fit which can be folded: the terminal's, at least 60; 100
/// elsewhere.
std::size_t table_width();

}  // namespace tilescope::cli
