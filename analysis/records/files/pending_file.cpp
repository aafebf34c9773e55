// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/files/pending_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace tilescope {
namespace {

namespace fs = std::filesystem;
constexpr const char* kOpenFiles = "/proc/self/fd/";

int write_to(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Where `path` points in the end, whether or not a file is there; "" and errno for links in a circle.
std::string behind_links(std::string path) {
  constexpr int kMostLinks = 40;  // as Linux
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code none;
    const fs::path next = fs::read_symlink(path, none);
    if (none) return path;
    path = next.is_absolute() ? next.string() : (fs::path(path).parent_path() / next).string();
  }
  errno = ELOOP;
  return "";
}

}  // namespace

PendingFile::PendingFile(const std::string& target) : target_(behind_links(target)) {
  if (target_.empty()) {
    error_ = errno;
    return;
  }
  struct stat old {};
  const bool replaces = ::stat(target_.c_str(), &old) == 0;
  constexpr mode_t kUsual = 0666, kAll = 07777;
  const mode_t mode = replaces ? old.st_mode & kAll : kUsual;
  const fs::path folder = fs::path(target_).parent_path();
  temporary_ = target_ + ".tmp." + std::to_string(::getpid());
  if (::access(kOpenFiles, X_OK) == 0)  // by which commit() names it
    descriptor_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (descriptor_ < 0) {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    named_ = descriptor_ >= 0;
  }
  if (descriptor_ < 0 || (replaces && ::fchmod(descriptor_, mode) != 0)) error_ = errno;
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      error_(other.error_),
      named_(std::exchange(other.named_, false)) {}

PendingFile::~PendingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (named_) ::unlink(temporary_.c_str());
}

int PendingFile::write(std::string_view content) {
  if (error_ == 0) error_ = write_to(descriptor_, content);
  return error_;
}

// A link cannot take the place of a file, a rename can: the name between the two exists for a moment.
int PendingFile::commit() {
  if (error_ != 0) return error_;
  if (!named_) {
    const std::string unnamed = kOpenFiles + std::to_string(descriptor_);
    ::unlink(temporary_.c_str());
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return error_ = errno;
    named_ = true;
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) return error_ = errno;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return error_ = errno;
  named_ = false;
  return 0;
}

}  // namespace tilescope
