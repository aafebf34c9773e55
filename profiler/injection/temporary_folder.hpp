// SPDX-License-Identifier: Apache-2.0
// Where processes leave what they have to say.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

/// A folder that goes when the object does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code ignored;
    path_ = (std::filesystem::temp_directory_path(ignored) / "tilescope-XXXXXX").string();
    if (!mkdtemp(path_.data())) {
      throw MachineLacks("no folder for temporary files could be made as " + path_ + " (" +
                         std::strerror(errno) + ")");
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tilescope
