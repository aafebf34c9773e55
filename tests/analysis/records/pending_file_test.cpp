// SPDX-License-Identifier: Apache-2.0
// Output files are whole or not there, through links, with the permissions that they had.
#include "analysis/records/files/pending_file.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "analysis/records/files/text_file.hpp"
#include "common/errors.hpp"
#include "common/temporary_folder.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a link is written through, whether or not a file is where it points") {
  const TemporaryFolder folder;
  const fs::path there = folder.path() / "there", link = folder.path() / "link";
  fs::create_symlink("there", link);
  for (const char* text : {"first", "second"}) {
    write_file_atomically("--json", link.string(), text);
    CHECK(fs::is_symlink(link));
    CHECK_FALSE(fs::is_symlink(there));
    CHECK(content_of(there) == text);
  }
  const fs::path circle = folder.path() / "circle";
  fs::create_symlink("circle", circle);
  CHECK_THROWS_AS(write_file_atomically("--json", circle.string(), "text"), BadInput);
  CHECK(fs::is_symlink(circle));
}

TEST_CASE("a file that is replaced keeps its permissions") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "secret";
  std::ofstream(path) << "old";
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically("--json", path.string(), "new");
  CHECK(content_of(path) == "new");
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("a process that is ended while it writes leaves nothing") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "out";
  std::ofstream(path) << "old";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    PendingFile file(path.string());
    file.write("half of");
    std::raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(content_of(path) == "old");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

}  // namespace tilescope
