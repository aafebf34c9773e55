// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/files/text_file.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "analysis/records/files/pending_file.hpp"
#include "common/errors.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostTextBytes = std::size_t{1} << 28;

[[noreturn]] void refuse(const std::string& field, const std::string& path, int error) {
  refuse_write(field, path.empty() ? "''" : path, error);
}

[[noreturn]] void refuse_size(const std::string& path) {
  throw BadInput("file", path, fmt::format("is larger than {} bytes, which no record is", kMostTextBytes));
}

/// Makes a file beside `path` and removes it; permission bits alone do not tell (read-only mounts, quotas).
void probe(const std::string& field, const std::string& path, const std::string& beside) {
  std::string name = beside + ".XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) refuse(field, path, errno);
  close(descriptor);
  unlink(name.c_str());
}

/// What zlib takes for a gzip header and trailer round what it compresses.
constexpr int kGzipWindow = 15 + 16;

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

/// @throws BadInput for what is damaged, ends early, or is followed by something else
std::string decompressed(const std::string& path, const std::string& bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 18);
  int state = Z_OK;
  while (state == Z_OK && text.size() <= kMostTextBytes) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  const bool whole = state == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  if (text.size() > kMostTextBytes) refuse_size(path);
  if (!whole) throw BadInput("file", path, "must be whole: it is compressed, and damaged or cut off");
  return text;
}

/// The same bytes for the same text: without name and time.
std::string compressed(std::string_view text) {
  constexpr int kMostMemory = 9;
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, kMostMemory, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::bad_alloc();
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

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

std::string read_text_file(const std::string& path) {
  const bool standard_input = path == "-";
  std::FILE* file = standard_input ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw BadInput("file", path, std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, got);
    if (text.size() > kMostTextBytes) break;
  }
  const int error = std::ferror(file) ? errno : 0;
  if (!standard_input) std::fclose(file);
  if (error != 0) throw BadInput("file", path, std::string("cannot be read: ") + std::strerror(error));
  if (text.size() > kMostTextBytes) refuse_size(path);
  return is_gzip(text) ? decompressed(path, text) : text;
}

void write_file_atomically(const std::string& field, const std::string& path, std::string_view text) {
  const std::string packed = path.ends_with(".gz") ? compressed(text) : "";
  const std::string_view content = packed.empty() ? text : packed;
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
  PendingFile file(path);
  int error = file.write(content);
  if (error == 0) error = file.commit();
  if (error != 0) refuse_write(field, path, error);
}

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
