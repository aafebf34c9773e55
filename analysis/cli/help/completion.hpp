// SPDX-License-Identifier: Apache-2.0
// Shell completion and the man page, written from the tree of commands and options that is parsed.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace tilescope::cli {

/// A script for bash, zsh or fish. @throws BadInput on another shell
std::string completion_script(const CLI::App& app, const std::string& shell);

/// tilescope(1), for man.
std::string man_page(const CLI::App& app);

}  // namespace tilescope::cli
