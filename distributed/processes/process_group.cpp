// SPDX-License-Identifier: Apache-2.0
#include "distributed/processes/process_group.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "common/errors.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTurn{10};  // between two looks at the others
constexpr std::size_t kLongestReason = 4096;

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

[[noreturn]] void cannot(const fs::path& path, int error) {
  throw MachineLacks("processes cannot meet in " + path.string() + " (" + std::strerror(error) +
                     "); TILESCOPE_RENDEZVOUS can name another folder");
}

/// Makes the folder, or takes one that only this user can write to.
void make_private(const fs::path& folder) {
  struct stat found {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) cannot(folder, errno);
  if (lstat(folder.c_str(), &found) != 0) cannot(folder, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0)
    throw BadInput("TILESCOPE_RENDEZVOUS", folder.string(),
                   "must be a folder of this user alone (chmod 700)");
}

/// A file of this process's, locked until the descriptor is closed. @returns -1 while somebody else holds it
int lock_file(const fs::path& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) cannot(path, errno);
  struct flock lock = whole_file();
  if (fcntl(file, F_OFD_SETLK, &lock) == 0) return file;
  const int error = errno;
  close(file);
  if (error != EAGAIN && error != EACCES) cannot(path, error);
  return -1;
}

std::optional<std::string> text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kLongestReason, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

ProcessGroup::ProcessGroup(const ProcessPlace& place, milliseconds limit) : place_(place), limit_(limit) {
  if (place_.ranks == 1) return;
  try {
    take_folder();
    await_others();
  } catch (...) {
    leave();
    throw;
  }
}

ProcessGroup::~ProcessGroup() { leave(); }

/// The last one clears up.
void ProcessGroup::leave() noexcept {
  if (lock_ < 0) return;
  close(std::exchange(lock_, -1));
  for (int rank = 0; rank < place_.ranks; ++rank) {
    if (is_alive(rank)) return;
  }
  std::error_code ignored;
  fs::remove_all(place_.folder, ignored);
}

fs::path ProcessGroup::lock_of(int rank) const { return place_.folder / ("rank-" + std::to_string(rank)); }
fs::path ProcessGroup::values_of(int rank) const {
  return place_.folder / ("values-" + std::to_string(turn_) + "-" + std::to_string(rank));
}

/// Rank 0 takes away what an earlier run has left before it locks its file; the others begin after that.
void ProcessGroup::take_folder() {
  const auto deadline = Clock::now() + limit_;
  if (place_.rank == 0) {
    make_private(place_.folder);
    for (int rank = 0; rank < place_.ranks; ++rank) {
      if (is_alive(rank))
        throw BadInput("TILESCOPE_RENDEZVOUS", place_.folder.string(),
                       "must be of this run alone: another uses it");
    }
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(place_.folder, failed)) fs::remove(entry.path(), failed);
    if (failed) cannot(place_.folder, failed.value());
  } else {
    while (!is_alive(0)) {
      if (Clock::now() > deadline)
        throw RankFailure(0, "did not come to " + place_.folder.string() + " within " +
                                 std::to_string(limit_.count()) + " ms");
      std::this_thread::sleep_for(kTurn);
    }
    make_private(place_.folder);
  }
  lock_ = lock_file(lock_of(place_.rank));
  if (lock_ < 0)
    throw BadInput("TILESCOPE_RENDEZVOUS", place_.folder.string(),
                   "must be of this run alone: another uses it");
}

void ProcessGroup::await_others() {
  const auto deadline = Clock::now() + limit_;
  for (int rank = 0; rank < place_.ranks;) {
    if (is_alive(rank)) {
      ++rank;
    } else if (Clock::now() > deadline) {
      blame(rank, "did not come within " + std::to_string(limit_.count()) + " ms");
    } else {
      heed_others();
      std::this_thread::sleep_for(kTurn);
    }
  }
}

bool ProcessGroup::is_alive(int rank) const {
  if (rank == place_.rank && lock_ >= 0) return true;
  const int file = open(lock_of(rank).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  struct flock lock = whole_file();
  const bool locked = fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(file);
  return locked;
}

int ProcessGroup::ended_rank() const {
  for (int rank = 0; rank < place_.ranks; ++rank) {
    if (!is_alive(rank)) return rank;
  }
  return -1;
}

void ProcessGroup::write(const fs::path& path, std::span<const std::byte> data) const {
  fs::path unfinished = path;
  unfinished += "." + std::to_string(place_.rank) + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file) cannot(unfinished, errno);
  std::error_code failed;
  fs::rename(unfinished, path, failed);
  if (failed) cannot(path, failed.value());
}

void ProcessGroup::read(int from, std::span<std::byte> data) {
  const fs::path path = values_of(from);
  const auto deadline = Clock::now() + limit_;
  for (;;) {
    const int ended = ended_rank();  // before the look at the file: who has left it there may end
    std::error_code missing;
    const std::uintmax_t size = fs::file_size(path, missing);
    if (!missing && size != data.size())
      blame(from, "gave " + std::to_string(size) + " bytes where there are " + std::to_string(data.size()));
    if (!missing) break;
    heed_others();
    if (ended >= 0) blame(ended, "its process ended");
    if (Clock::now() > deadline) blame(from, "said nothing for " + std::to_string(limit_.count()) + " ms");
    std::this_thread::sleep_for(kTurn);
  }
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  if (!file) blame(from, "left values that cannot be read");
}

void ProcessGroup::reduce_bytes(std::span<std::byte> values,
                                const std::function<void(const std::byte* more)>& fold) {
  if (place_.ranks == 1) return;
  std::error_code ignored;
  if (place_.rank > 0) {
    write(values_of(place_.rank), values);
    read(0, values);
  } else {
    std::vector<std::byte> others(values.size());
    for (int rank = 1; rank < place_.ranks; ++rank) {
      read(rank, others);
      fold(others.data());
      fs::remove(values_of(rank), ignored);
    }
    write(values_of(0), values);
    --turn_;
    fs::remove(values_of(0), ignored);  // of the reduction before, which all have read
    ++turn_;
  }
  ++turn_;
}

void ProcessGroup::heed_others() {
  if (const auto told = text_of(place_.folder / "failure")) {
    const std::size_t line = told->find('\n');
    throw RankFailure(std::atoi(told->c_str()), line == std::string::npos ? "" : told->substr(line + 1));
  }
  for (int rank = 0; rank < place_.ranks && !stalls_; ++rank) {
    if (const auto why = text_of(place_.folder / ("stall-" + std::to_string(rank)))) stalled(*why);
  }
}

void ProcessGroup::check() {
  if (place_.ranks == 1) return;
  const int ended = ended_rank();
  heed_others();
  if (ended >= 0) blame(ended, "its process ended");
}

/// The file appears whole, and only if there is none yet.
void ProcessGroup::tell_failure(int rank, const std::string& why) const {
  const fs::path path = place_.folder / "failure";
  const fs::path own = place_.folder / ("failure-" + std::to_string(place_.rank));
  const std::string text = std::to_string(rank) + "\n" + why;
  write(own, std::as_bytes(std::span(text)));
  std::error_code told_before;
  fs::create_hard_link(own, path, told_before);
}

void ProcessGroup::blame(int rank, const std::string& why) {
  tell_failure(rank, why);
  heed_others();
  throw RankFailure(rank, why);  // where files cannot be linked
}

void ProcessGroup::fail(const std::string& why) noexcept {
  if (place_.ranks == 1) return;
  try {
    tell_failure(place_.rank, why);
  } catch (const std::exception&) {  // whoever does not hear it finds this process ended
  }
}

/// All others that are alive wait as well, and say so when they hear of it.
void ProcessGroup::stalled(const std::string& why) {
  stalls_ = true;
  const auto stall_of = [&](int rank) { return place_.folder / ("stall-" + std::to_string(rank)); };
  write(stall_of(place_.rank), std::as_bytes(std::span(why)));
  for (const auto deadline = Clock::now() + limit_ / 2; Clock::now() < deadline;) {
    heed_others();
    std::this_thread::sleep_for(kTurn);
  }
  std::error_code ignored;
  for (int rank = 0; rank < place_.ranks; ++rank) {
    if (!fs::exists(stall_of(rank), ignored)) blame(rank, why);
  }
  blame(0, why);
}

}  // namespace tilescope
