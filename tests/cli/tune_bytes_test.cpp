// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate --tune-bytes`: which tiles, orders and scans move least.
#include <doctest/doctest.h>

#include <regex>

#include "analysis/records/run_record.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {

TEST_CASE("--tune-bytes leaves the Pareto front of tiles, orders and scans") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program({"simulate", "--seqlen", "512", "--heads", "2", "--dtype", "fp16",
                                            "--kernel", "cpu:flash2", "--tune-bytes", "--json", "front.json"},
                                           folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "own choice"));
  CHECK(contains(result.out, "choices replayed"));
  CHECK(contains(result.out, "Pareto front"));
  CHECK(std::regex_search(result.out,
                          std::regex("least .*: +--tile [0-9]+x[0-9]+ --order [a-z-]+ --scan [a-z]+\n")));
  const RunRecord record = read_run_record((folder.path() / "front.json").string());
  REQUIRE_FALSE(record.runs.empty());
  for (const RunEntry& a : record.runs) {  // nobody on the front beats another
    for (const RunEntry& b : record.runs) {
      const auto sm_l2 = [](const RunEntry& run) {
        const auto& closed = *run.passes[0].closed_form;
        return closed.sm_l2_read_bytes + closed.sm_l2_write_bytes;
      };
      const auto dram = [](const RunEntry& run) {
        return run.passes[0].simulated->dram_read_bytes + run.passes[0].simulated->dram_write_bytes;
      };
      CHECK_FALSE((sm_l2(a) < sm_l2(b) && dram(a) <= dram(b)));
    }
  }
  check_refused(
      {{"simulate", "--tune-bytes", "--tile", "64x64"}, {"--tune-bytes", "without --sweep, --tile"}});
}

TEST_CASE("--tune-bytes says in which builds the tiles are that it names") {
  const auto told = [](const char* kernel) {
    const ProgramResult result =
        run_program({"simulate", "--seqlen", "1024", "--heads", "2", "--dtype", "fp16", "--head-dim", "64",
                     "--kernel", kernel, "--tune-bytes", "--closed-form"});
    CHECK(result.exit_code == 0);
    return contains(result.out, "tiles other than its own are in builds with -D TILESCOPE_TUNER=ON alone\n");
  };
  CHECK(told("gpu:flash2-mma"));
  CHECK_FALSE(told("gpu:split-k"));  // its own tile is the best
  CHECK(told("gpu:flash1"));
  CHECK_FALSE(told("cpu:flash2"));  // has all
}

TEST_CASE("--tune-bytes by formula alone says nothing of DRAM") {
  const std::string text = run_program({"simulate", "--seqlen", "256", "--heads", "1", "--kernel",
                                        "cpu:flash2", "--tune-bytes", "--closed-form"})
                               .out;
  CHECK_FALSE(contains(text, "DRAM"));
  CHECK_FALSE(contains(text, "replayed"));
  CHECK(contains(text, "choices counted by formula"));
}

TEST_CASE("--dry-run is refused beside what would replay all the same") {
  for (const std::string mode : {"--tune-bytes", "--advise", "--record=run.json"}) {
    check_refused(
        {{"simulate", mode, "--dry-run"}, {"excludes", mode.substr(0, mode.find('=')), "--dry-run"}});
  }
}

}  // namespace tilescope::testing
