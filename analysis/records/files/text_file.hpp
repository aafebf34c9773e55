// SPDX-License-Identifier: Apache-2.0
// Whole files: read, written completely or not at all, and known to be writable before long work.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope {

/// The text of a file, or of standard input for "-", decompressed where it is compressed by gzip.
/// @throws BadInput if it cannot be read, is damaged, or is larger than any record
std::string read_text_file(const std::string& path);

/// Writes `text` to `path` by a PendingFile, so that no reader ever sees half of it and a failed write leaves
/// what was there before. "-" is standard output; devices and pipes are written
/// directly. What ends in ".gz" is compressed.
/// @param field names the option or field that the path came from, for the error message
/// @throws BadInput if the file cannot be written
void write_file_atomically(const std::string& field, const std::string& path, std::string_view text);

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
