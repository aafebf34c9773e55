// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/terminal_width.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace tilescope::cli {
namespace {

constexpr std::size_t kUsual = 100, kLeast = 60;

}  // namespace

std::optional<std::size_t> terminal_columns(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col <= 1) return std::nullopt;
  return size.ws_col;
}

std::size_t text_width() { return std::min(table_width(), kUsual); }

std::size_t table_width() { return std::max(terminal_columns(STDOUT_FILENO).value_or(kUsual), kLeast); }

}  // namespace tilescope::cli
