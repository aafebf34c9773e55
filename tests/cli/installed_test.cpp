// SPDX-License-Identifier: Apache-2.0
// The program away from the sources that it was built from: what it needs it finds by its own place.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/any_driver.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

namespace fs = std::filesystem;

/// Exit code of a shell's command line.
int shell(const std::string& line) { return std::system(line.c_str()); }

}  // namespace

TEST_CASE("an installation works from its prefix, and from wherever that is moved to") {
  const fs::path build = fs::path(TILESCOPE_PROGRAM).parent_path().parent_path();
  const TemporaryFolder folder;
  const fs::path prefix = folder.path() / "prefix", moved = folder.path() / "moved";
  REQUIRE(shell("cmake --install '" + build.string() + "' --prefix '" + prefix.string() + "' >/dev/null") ==
          0);
  fs::rename(prefix, moved);
  const std::string program = (moved / "bin/tilescope").string();
  const fs::path machines = moved / "share/tilescope/machines";
  // The model of a machine that the sources do not have, to see which files are read.
  fs::copy_file(machines / "h200.json", machines / "my-gpu.json");
  CHECK(shell("'" + program + "' list machines | grep -q my-gpu") == 0);
  CHECK(shell("'" + program + "' simulate --seqlen 64 --machine my-gpu --quiet") == 0);
  CHECK(fs::exists(moved / "share/tilescope/benchmarks/peers.py"));
  for (const char* page : {"man/man1/tilescope.1", "bash-completion/completions/tilescope",
                           "zsh/site-functions/_tilescope", "fish/vendor_completions.d/tilescope.fish"}) {
    CHECK(fs::file_size(moved / "share" / page) > 1000);
  }
#ifdef TILESCOPE_INJECTION_LIBRARY
  const AnyDriver driver;
  CHECK(WEXITSTATUS(shell("'" + program + "' profile --quiet -- true 2>/dev/null")) ==
        1);  // true has no kernels
  fs::remove(moved / "lib/tilescope/libtilescope_inject.so");
  CHECK(WEXITSTATUS(shell("'" + program + "' profile --quiet -- true 2>/dev/null")) == 3);
#endif
  fs::remove_all(machines);
  CHECK(WEXITSTATUS(shell("'" + program + "' list machines 2>/dev/null")) == 3);
}

}  // namespace tilescope::testing
