// SPDX-License-Identifier: Apache-2.0
// What every bad command must do, as one check.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/run_program.hpp"

namespace tilescope::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct BadCommand {
  std::vector<std::string> arguments;
  std::vector<std::string> said;  // field, value and what is allowed
};

/// Exit code 2, one sentence on standard error with all of `said`, no output and no file.
inline void check_refused(const BadCommand& bad) {
  std::string line = "tilescope";
  for (const std::string& word : bad.arguments) line += " '" + word + "'";
  CAPTURE(line);
  const TemporaryFolder folder;
  const ProgramResult result = run_program(bad.arguments, folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out == "");
  CHECK(result.err.starts_with("tilescope: "));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  for (const std::string& part : bad.said) {
    CAPTURE(part);
    CHECK(result.err.find(part) != std::string::npos);
  }
  CHECK(folder.empty());
}

}  // namespace tilescope::testing
