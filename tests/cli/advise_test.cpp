// SPDX-License-Identifier: Apache-2.0
// simulate --advise, and predicted times beside measured ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>

#include "analysis/records/files/text_file.hpp"
#include "tests/cli/program.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/paths.hpp"

namespace tilescope::cli {
namespace {

using namespace testing;

std::string said_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  const ProgramResult result = run_program(arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("--advise names the best choice, the runner-up and the kernel's own, and what of K and V fits") {
  const std::string text = said_of({"--seqlen", "2k", "--heads", "4", "--head-dim", "64", "--dtype", "fp16",
                                    "--causal", "--kernel", "gpu:flash2-mma", "--advise"});
  for (const char* part : {"K and V take 524.3 kB a key/value head", "all fit", "best ", "runner-up",
                           "its own", "10 of ", "ranked by predicted time", "best: --tile "}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK_FALSE(contains(text, "nothing to gain"));
  CHECK(contains(said_of({"--seqlen", "2k", "--heads", "4", "--head-dim", "64", "--dtype", "fp16",
                          "--l2-bytes", "1MiB", "--kernel", "gpu:flash2-mma", "--advise"}),
                 "the L2 keeps 1.049 MB of what is streamed"));
  const std::string alike = said_of({"--preset", "llama3-8b", "--advise"});
  CHECK(contains(alike, "nothing to gain: the kernel's own choice"));
  CHECK_FALSE(contains(alike, "best: --tile "));
  const std::string unknown =
      said_of({"--seqlen", "256", "--heads", "2", "--kernel", "cpu:flash2", "--advise"});
  CHECK(contains(unknown, "bound only"));
  CHECK(contains(unknown, "ranked by time bound"));
  CHECK(contains(said_of({"--seqlen", "256", "--heads", "2", "--kernel", "cpu:flash2", "--pass", "bwd",
                          "--backward", "q-outer", "--advise"}),
                 " --backward q-outer\n"));
  check_refused(
      {{"simulate", "--seqlen", "512", "--advise", "--tile", "64x64"}, {"--advise", "without --sweep"}});
  check_refused(
      {{"simulate", "--seqlen", "512", "--advise", "--machine", "h200,rtx-5070-ti"}, {"--machine", "one"}});
}

TEST_CASE("a prediction stands apart from the time bound, and says where there is none") {
  const std::string text = said_of({"--seqlen", "1k", "--head-dim", "128", "--dtype", "fp16", "--kernel",
                                    "gpu:flash3", "--kernel", "cpu:flash2"});
  CHECK(contains(text, "time bound"));
  CHECK(contains(text, "predicted time: gpu:flash3 "));
  const auto unfolded = [](const std::string& lines) {
    return std::regex_replace(lines, std::regex("\n *"), " ");
  };
  CHECK(contains(unfolded(text),
                 " (nine of ten times on an H200 lay within 0.87x ... 1.40x); bound only: cpu:flash2"));
  const std::string crossed = unfolded(said_of({"--seqlen", "1k", "--dtype", "fp16", "--kernel",
                                                "gpu:flash2-mma,gpu:flash3", "--machine", "h200,a100-80gb"}));
  for (const char* part : {"predicted time: gpu:flash2-mma on h200 ", ", gpu:flash3 on h200 ",
                           "bound only: gpu:flash2-mma on a100-80gb, gpu:flash3 on a100-80gb"})
    CHECK(contains(crossed, part));
  const std::string lacking = said_of({"--seqlen", "1k", "--head-dim", "128", "--dtype", "fp16", "--kernel",
                                       "gpu:flash2-mma", "--machine", "rtx-5070-ti", "--detail"});
  CHECK(contains(lacking, "no L2 rate"));
  const std::string capped =
      said_of({"--seqlen", "1k", "--dtype", "fp16", "--kernel", "gpu:flash3", "--softcap", "30"});
  CHECK(contains(capped, "no predicted time: the model does not know what modified scores take"));
  CHECK_FALSE(contains(said_of({"--seqlen", "1k", "--kernel", "cpu:flash2"}), "no predicted time"));
  CHECK(contains(lacking, "bound only"));
}

TEST_CASE("a record of bench is predicted direction by direction, other libraries left out") {
  const tilescope::TemporaryFolder folder;
  const std::string record = TILESCOPE_SOURCE_DIR "/reports/data/bench-h200-single-launch.json.gz";
  const std::string out = (folder.path() / "predicted.json").string();
  const std::string text = said_of({"--record", record, "--closed-form", "--json", out});
  CHECK(std::count(text.begin(), text.end(), '\n') == 37);  // a heading and 36 runs
  CHECK(contains(text, "backward"));
  const std::string predicted = read_text_file(out);
  CHECK(contains(predicted, "\"predicted\""));
  CHECK(contains(predicted, "\"time_interval_s\""));
  CHECK_FALSE(contains(predicted, "median_s"));  // nothing that was measured
}

}  // namespace tilescope::cli
