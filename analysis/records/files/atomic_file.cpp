// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/files/atomic_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "analysis/records/files/output_path.hpp"

namespace tilescope {
namespace {

/// 0, or the errno of the first step that failed.
int write_all(std::FILE* file, std::string_view content) {
  errno = 0;
  const bool ok = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (ok && std::fflush(file) == 0) return 0;
  return errno != 0 ? errno : EIO;
}

int write_path(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return errno;
  int error = write_all(file, content);
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

void write_file_atomically(const std::string& field, const std::string& path, std::string_view content) {
  namespace fs = std::filesystem;
  if (path == "-") {
    const int error = write_all(stdout, content);
    const bool reader_left = error == EPIPE;  // `| head -1` has what it wanted
    if (error != 0 && !reader_left) refuse_write(field, "standard output", error);
    return;
  }
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (fs::is_directory(status)) refuse_write(field, path, EISDIR);
    if (const int error = write_path(path, content)) refuse_write(field, path, error);
    return;
  }
  // Through a symbolic link, the file that it points at is replaced, not the link.
  fs::path target = fs::exists(status) ? fs::canonical(path, ignored) : fs::path(path);
  const std::string temporary = target.string() + ".tmp." + std::to_string(::getpid());
  int error = write_path(temporary, content);
  if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return;
  fs::remove(temporary, ignored);
  refuse_write(field, path, error);
}

}  // namespace tilescope
