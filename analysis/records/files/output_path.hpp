// SPDX-License-Identifier: Apache-2.0
// Finding out before long work whether its results can be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tilescope {

/// Nothing is left behind and nothing that is there is touched.
/// @param field the option that named the path, for the message
/// @throws BadInput saying why no file could be written to `path`
void require_writable_file(const std::string& field, const std::string& path);

/// Folders that a command made. Those into which nothing came go again with this: work that fails leaves
/// none.
class CreatedFolders {
 public:
  CreatedFolders() = default;
  CreatedFolders(CreatedFolders&&) = default;
  CreatedFolders& operator=(CreatedFolders&&) = default;
  ~CreatedFolders();
  void add(std::filesystem::path folder) { folders_.push_back(std::move(folder)); }

 private:
  std::vector<std::filesystem::path> folders_;  // a parent before its children
};

/// Creates `path` and its parents where missing.
/// @returns what was created, to be held until files are there
/// @throws BadInput saying why no file could be made in it, MachineLacks on a full disk
[[nodiscard]] CreatedFolders require_writable_folder(const std::string& field, const std::string& path);

/// For a file that could not be written after all.
/// @throws MachineLacks where the disk is full or failed, else BadInput: the path was wrong
[[noreturn]] void refuse_write(const std::string& field, const std::string& path, int error);

}  // namespace tilescope
