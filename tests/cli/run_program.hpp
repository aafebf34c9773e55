// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user's shell would, and catches all that it says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tilescope::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when killed
  std::string out, err;
};

/// Runs `tilescope ARGUMENTS...` in `folder`; its standard output is caught, or goes to `stdout_path`.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::filesystem::path& folder = std::filesystem::current_path(),
                          const std::string& stdout_path = "");

/// Runs `tilescope ARGUMENTS...` with a standard output that nobody reads any more.
ProgramResult run_program_without_reader(const std::vector<std::string>& arguments);

/// An empty folder that goes when the object does.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

}  // namespace tilescope::testing
