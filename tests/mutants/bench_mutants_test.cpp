// SPDX-License-Identifier: Apache-2.0
// `tilescope bench` of a kernel with a bug: wrong results are not timed.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "analysis/cli/command_line.hpp"
#include "analysis/records/run_record.hpp"
#include "common/temporary_folder.hpp"
#include "tests/mutants/active_mutant.hpp"
#include "tests/mutants/mutant.hpp"

namespace tilescope::cli {
namespace {

/// The exit code of `tilescope bench` on a tiny problem, with the mutant of that name; "": none.
int bench(const std::string& mutant, const std::vector<std::string>& more, const std::string& json) {
  const auto named = [&](const Mutant& one) { return one.name == mutant; };
  const auto found = std::find_if(kMutants.begin(), kMutants.end(), named);
  REQUIRE((mutant.empty() || found != kMutants.end()));
  std::vector<std::string> argv = {
      "tilescope", "bench",     "--quiet",    "--kernel", "cpu:flash2", "--heads", "2",
      "--seqlen",  "48",        "--head-dim", "16",       "--tile",     "16x16",   "--repetitions",
      "2",         "--seconds", "0.001",      "--json",   json};
  argv.insert(argv.end(), more.begin(), more.end());
  active_mutant = mutant.empty() ? 0 : 1 + static_cast<int>(found - kMutants.begin());
  const int exit_code = run_command_line(argv);
  active_mutant = 0;
  return exit_code;
}

TEST_CASE(
    "wrong results are not timed, in either direction; --no-verify times them, and the record says so") {
  const TemporaryFolder folder;
  const std::string json = (folder.path() / "run.json").string();
  for (const char* mutant : {"rescale_lost", "dk_not_scaled"}) {
    CAPTURE(mutant);
    CHECK(bench(mutant, {}, json) == 1);
    CHECK(!std::filesystem::exists(json));
  }
  CHECK(bench("rescale_lost", {"--no-verify"}, json) == 0);
  CHECK(read_run_record(json).runs.at(0).verified == 0);
  CHECK(bench("", {}, json) == 0);
  CHECK(read_run_record(json).runs.at(0).verified == 16);
}

}  // namespace
}  // namespace tilescope::cli
