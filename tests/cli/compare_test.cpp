// SPDX-License-Identifier: Apache-2.0
// `tilescope compare`, and `diff --explain`: the tensor that grew, and the choice through which it did.
#include <doctest/doctest.h>

#include <regex>

#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

/// In one line, as it was before it was wrapped.
std::string compared(const std::string& a, const std::string& b, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"compare", a, b, "--seqlen", "1k", "--dtype", "fp16"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramResult result = run_program(arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  std::string text = result.out;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

TEST_CASE("compare ends with why two kernels move different bytes") {
  CHECK(contains(compared("cpu:standard", "cpu:flash2"), "forward: cpu:standard moves"));
  CHECK(contains(compared("cpu:standard", "cpu:flash2"),
                 "cpu:standard keeps them in memory, cpu:flash2 on chip."));
  const std::string tiles = compared("cpu:flash2,tile=64x64", "cpu:flash2,tile=128x64");
  CHECK(contains(tiles, "cpu:flash2,tile=64x64 moves"));
  CHECK(contains(tiles, "by tiles of 64x64 against 128x64"));
  CHECK(contains(tiles, "16 times over, cpu:flash2,tile=128x64 8 times"));
  const std::string loops = compared("cpu:flash1", "cpu:flash2");
  CHECK(contains(loops, "from more of out_accum (+"));  // more than the whole difference
  CHECK(contains(loops, " and others (+"));
  CHECK(contains(compared("cpu:flash2,tile=128x64", "cpu:flash2,tile=1024x64"),
                 "8 times over, cpu:flash2,tile=1024x64 once, by tiles"));
  CHECK(contains(loops, ") against less of "));
  CHECK(contains(tiles, "all of it k and v (+"));
  CHECK(contains(tiles, " each): cpu:flash2,tile=64x64 moves them 16 times over"));
  CHECK(contains(compared("cpu:flash1", "cpu:flash2"), "cpu:flash1 keeps it in memory, cpu:flash2 on chip."));
  CHECK(contains(compared("cpu:flash2", "cpu:flash2"), "move the same at both boundaries."));
  for (const char* pass : {"fwd", "bwd"}) {  // work counters and flags are no tensor's
    const std::string gpu = compared("gpu:flash2-mma", "gpu:flash3,query-splits=1",
                                     {"--head-dim", "128", "--causal", "--pass", pass});
    CHECK(contains(gpu, "gpu:flash3"));
    CHECK(contains(gpu, "Beside its tensors gpu:flash"));
    CHECK_FALSE(contains(gpu, "no tensor explains"));
  }
  const std::string orders =
      compared("cpu:flash2", "cpu:flash2,order=longest-first", {"--causal", "--machine", "a100-40gb"});
  CHECK(contains(orders, "move the same"));
  const std::string both = compared("gpu:flash2-mma", "gpu:flash3", {"--causal", "--pass", "fwd+bwd"});
  CHECK(contains(both, " backward: "));
  CHECK_FALSE(std::regex_search(both, std::regex("ward: *(backward:|$)")));  // each with its answer
  const std::string machines = compared("cpu:flash1", "cpu:flash2", {"--machine", "h200,a100-80gb"});
  for (const char* title : {" on NVIDIA H200", " on NVIDIA A100"}) {
    const std::size_t at = machines.find(title);
    REQUIRE(at != std::string::npos);
    CHECK(machines.find(" forward: cpu:flash1 moves ", at) != std::string::npos);
  }
  check_refused(
      {{"compare", "cpu:flash1", "cpu:flash2", "--machine", "h200,h300"}, {"h300", "must be one of"}});
  check_refused({{"compare", "cpu:flash2"}, {"B = ''", "kernel"}});
  check_refused({{"compare", "cpu:flash2,tle=1x1", "cpu:flash2"}, {"tle", "did you mean tile"}});
}

TEST_CASE("diff --explain names the tensor and the choice, and --format md makes a comment of it") {
  const TemporaryFolder folder;
  for (const auto& [name, tile] : {std::pair("base.json", "128x64"), {"new.json", "64x64"}}) {
    CHECK(
        run_program({"simulate", "--kernel", "cpu:flash2", "--seqlen", "1k", "--tile", tile, "--json", name},
                    folder.path())
            .exit_code == 0);
  }
  const ProgramResult text = run_program({"diff", "base.json", "new.json", "--explain"}, folder.path());
  CAPTURE(text.out);
  CHECK(text.exit_code == 1);
  CHECK(contains(text.out, "forward: NEW moves"));
  CHECK(contains(text.out, "by tiles of 64x64"));
  const ProgramResult md =
      run_program({"diff", "base.json", "new.json", "--explain", "--format", "md"}, folder.path());
  CHECK(md.exit_code == 1);
  CHECK(md.out.starts_with("**"));
  CHECK(contains(md.out, "| metric | of | base | new |"));
  CHECK(contains(md.out, "REGRESSION"));
  CHECK(contains(md.out, "forward: NEW moves"));
  check_refused({{"diff", "a", "b", "--format", "html"}, {"format", "text, markdown, csv, latex"}});
}

TEST_CASE("a budget takes units, those of its metric") {
  const TemporaryFolder folder;
  CHECK(run_program({"simulate", "--seqlen", "256", "--json", "a.json"}, folder.path()).exit_code == 0);
  CHECK(
      run_program({"diff", "a.json", "a.json", "--budget", "dram_read_bytes=1GB"}, folder.path()).exit_code ==
      0);
  const ProgramResult wrong =
      run_program({"diff", "a.json", "a.json", "--budget", "dram_read_bytes=2ms"}, folder.path());
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "in the metric's unit"));
}

}  // namespace tilescope::testing
