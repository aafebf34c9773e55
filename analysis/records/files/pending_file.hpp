// SPDX-License-Identifier: Apache-2.0
// Output files that have no name until they are whole.
#pragma once

#include <string>
#include <string_view>

namespace tilescope {

/// A file that has no name until it is whole, where its file system can do that; elsewhere one with a name of
/// its own beside its place. Functions return 0, or the errno of what failed; then nothing has changed.
class PendingFile {
 public:
  /// @param target  where it goes; through a symbolic link, to where the link points. A file that is there
  /// keeps its permissions.
  explicit PendingFile(const std::string& target);
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  /// Without commit() nothing of it is left.
  ~PendingFile();

  int write(std::string_view content);
  /// Puts it in its place.
  int commit();

 private:
  std::string target_, temporary_;
  int descriptor_ = -1, error_ = 0;
  bool named_ = false;  // the temporary name is taken
};

}  // namespace tilescope
