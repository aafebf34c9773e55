// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace tilescope {

/// A folder of this process alone, in the system's place for temporary files; it goes, with what is in it,
/// when the object does.
class TemporaryFolder {
 public:
  /// @throws MachineLacks where none can be made
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tilescope
