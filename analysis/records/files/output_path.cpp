// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/files/output_path.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& field, const std::string& path, int error) {
  refuse_write(field, path.empty() ? "''" : path, error);
}

/// Makes a file beside `path` and removes it; permission bits alone do not tell (read-only mounts, quotas).
void probe(const std::string& field, const std::string& path, const std::string& beside) {
  std::string name = beside + ".XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) refuse(field, path, errno);
  close(descriptor);
  unlink(name.c_str());
}

}  // namespace

void require_writable_file(const std::string& field, const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (path.empty()) refuse(field, path, ENOENT);
  if (fs::is_directory(status)) refuse(field, path, EISDIR);
  if (fs::exists(status) && access(path.c_str(), W_OK) != 0) refuse(field, path, errno);
  if (!fs::exists(status) || fs::is_regular_file(status)) probe(field, path, path);
}

CreatedFolders::~CreatedFolders() {
  std::error_code ignored;  // what is not empty stays
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) fs::remove(*folder, ignored);
}

CreatedFolders require_writable_folder(const std::string& field, const std::string& path) {
  CreatedFolders created;
  std::error_code error;
  fs::path parent;
  for (const fs::path& name : fs::path(path)) {
    parent /= name;
    if (!error && fs::create_directory(parent, error)) created.add(parent);
  }
  if (!fs::is_directory(path)) refuse(field, path, error ? error.value() : ENOTDIR);
  probe(field, path, path + "/probe");
  return created;
}

void refuse_write(const std::string& field, const std::string& path, int error) {
  for (const int machine : {ENOSPC, EDQUOT, EFBIG, EIO}) {
    if (error != machine) continue;
    throw MachineLacks(field + " = " + path + " cannot be written (" + std::strerror(error) +
                       "): make room, or name another place");
  }
  throw BadInput(field, path,
                 std::string("must be a path that can be written (") + std::strerror(error) + ")");
}

}  // namespace tilescope
