// SPDX-License-Identifier: Apache-2.0
#include "common/installed_files.hpp"

namespace tilescope {

std::filesystem::path installed_file(std::string_view relative) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return program.parent_path().parent_path() / relative;
}

}  // namespace tilescope
