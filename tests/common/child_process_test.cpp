// SPDX-License-Identifier: Apache-2.0
#include "common/child_process.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tilescope {

TEST_CASE("the end of a command is seen where SIGCHLD is ignored") {
  const auto before = signal(SIGCHLD, SIG_IGN);
  {
    ForegroundCommand command({{"sh", "-c", "exit 7"}, {}, {}, {}});
    std::optional<int> status;
    while (!(status = command.ended())) usleep(1000);
    CHECK(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == 7);
  }
  CHECK((signal(SIGCHLD, before) == SIG_IGN));
}

TEST_CASE("a command waits for its own children, whatever is ignored here") {
  const auto before = signal(SIGCHLD, SIG_IGN);
  {
    ForegroundCommand command({{"sh", "-c", "grep -q '^SigIgn:.*0000$' /proc/self/status"}, {}, {}, {}});
    std::optional<int> status;
    while (!(status = command.ended())) usleep(1000);
    CHECK(*status == 0);
  }
  signal(SIGCHLD, before);
}

}  // namespace tilescope
