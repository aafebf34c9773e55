// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user's shell would, and catches all that it says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/temporary_folder.hpp"

namespace tilescope::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when killed
  std::string out, err;
};

/// Runs `tilescope ARGUMENTS...` in `folder`; its standard output is caught, or goes to `stdout_path`.
/// @param seconds  after which SIGALRM ends it; 0: never
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::filesystem::path& folder = std::filesystem::current_path(),
                          const std::string& stdout_path = "", unsigned seconds = 0);

/// Runs `tilescope ARGUMENTS...` with a standard output that nobody reads any more.
ProgramResult run_program_without_reader(const std::vector<std::string>& arguments);

/// What stands in a file; "" if there is none.
std::string read_file(const std::filesystem::path& path);

/// An empty folder that goes when the object does.
class TemporaryFolder : public tilescope::TemporaryFolder {
 public:
  bool empty() const { return std::filesystem::is_empty(path()); }
};

}  // namespace tilescope::testing
