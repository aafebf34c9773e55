// SPDX-License-Identifier: Apache-2.0
// `tilescope verify`, run as a user runs it.
#include <doctest/doctest.h>

#include <set>

#include "analysis/records/run_record.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

std::int64_t count(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("verify --gradients holds gradients against central differences, in words and in the record") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      {"verify", "--gradients", "--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--json", "g.json"},
      folder.path());
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(result.out.starts_with("ok   cpu:flash1"));
  CHECK(count(result.out, "by differences: dk 0.") == 4);
  CHECK(result.out.find("4 runs: 4 passed, 0 failed") != std::string::npos);
  const RunRecord record = read_run_record((folder.path() / "g.json").string());
  REQUIRE(record.runs.size() == 4);
  for (const RunEntry& run : record.runs) CHECK(run.gradients.size() == 9);
  CHECK(record.runs[0].gradients[0].tensor == "dq");
  CHECK(record.runs[0].gradients[0].bound > 0);

  check_refused(
      {{"verify", "--gradients", "--dtype", "fp16", "--kernel", "cpu:flash2"}, {"dtype", "fp16", "fp32"}});
  check_refused({{"verify", "--gradients", "--pass", "bwd"}, {"--gradients", "--pass"}});
}

TEST_CASE("verify judges one problem on the kernels that are named, one line each") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program({"verify", "--preset", "small", "--pass", "fwd+bwd", "--kernel",
                                            "cpu:flash2", "--kernel", "cpu:flash1", "--json", "verify.json"},
                                           folder.path());
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  CHECK(result.out.starts_with("ok   cpu:flash2 fused   "));
  CHECK(count(result.out, " B1 H4/2 Nq320 Nk384 D64 fp16 causal, normal: o 0.") == 2);
  CHECK(count(result.out, "\nok   cpu:flash1") == 1);
  CHECK(count(result.out, "\n") == 3);
  CHECK(result.out.find("2 runs on 1 problem: 2 passed, 0 failed") != std::string::npos);
  const ProgramResult one = run_program({"verify", "--seqlen", "64", "--kernel", "cpu:flash2"});
  CHECK(one.out.find("\n1 run on 1 problem: 1 passed, 0 failed") != std::string::npos);
  const RunRecord record = read_run_record((folder.path() / "verify.json").string());
  REQUIRE(record.runs.size() == 2);
  for (const RunEntry& run : record.runs) {
    CHECK(run.inputs == InputKind::normal);
    CHECK(run.passes.size() >= 3);
    CHECK(run.error.size() == 5);
    for (const auto& of_tensor : run.error) {
      const auto& [tensor, error] = of_tensor;
      CAPTURE(of_tensor.first);
      CHECK(std::set<std::string>{"o", "lse", "dq", "dk", "dv"}.count(tensor) == 1);
      CHECK(error.non_finite == 0);
      CHECK(error.max_abs <= error.bound);
      CHECK(error.rmse <= error.max_abs);
      CHECK(error.bound < 0.05);
    }
  }
}

TEST_CASE(
    "without a problem verify runs a sweep over all kernels that run here, --worst records one case for "
    "many") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"verify", "--quick", "-v", "--worst", "--json", "worst.json"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");  // no progress line in a pipe
  CHECK(count(result.out, "\nFAIL") == 0);
  for (const char* part :
       {"cpu:standard", "cpu:flash1", "cpu:flash2 split", "cpu:flash2 fused", "cpu:flash2 q-outer", "16x24",
        " 64x", "fp8e4m3", "bf16", "causal", "window(", "dropout", "outlier", "equal-rows", "huge-scale",
        "scale -0.25", "Nq1 ", " 0 failed"}) {
    CAPTURE(part);
    CHECK(count(result.out, part) >= 1);
  }
  CHECK(count(result.out, "\nok   cpu:flash1") > 50);
  std::int64_t cases = 0;
  const RunRecord record = read_run_record((folder.path() / "worst.json").string());
  for (const RunEntry& run : record.runs) {
    CHECK(run.failed == 0);
    cases += run.cases.value_or(0);
  }
  CHECK(cases > 100);
  CHECK(static_cast<std::int64_t>(record.runs.size()) < cases);
  CHECK(result.out.find(std::to_string(cases) + " runs on ") != std::string::npos);
  CHECK(result.out.find(": " + std::to_string(cases) + " passed, 0 failed") != std::string::npos);
}

TEST_CASE("verify --locate replays every tile") {
  const ProgramResult result = run_program({"verify", "--locate", "--seqlen", "100", "--heads", "2", "--pass",
                                            "fwd+bwd", "--dropout", "0.2", "--window", "40,5"});
  CHECK(result.exit_code == 0);
  CHECK(count(result.out, "first divergence: none, every tile is right") == 3);
}

TEST_CASE("the kind of inputs can be chosen for one problem") {
  const ProgramResult result =
      run_program({"verify", "--inputs", "outlier", "--seqlen", "65", "--dtype", "bf16"});
  CHECK(result.exit_code == 0);
  CHECK(count(result.out, "bf16, outlier:") == 3);
}

TEST_CASE("verify --repeat compares the bits of many runs") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"verify", "--repeat", "3", "--kernel", "cpu:flash2", "--backward", "q-outer", "--seqlen",
                   "50", "--heads", "2", "--pass", "fwd+bwd", "--json", "repeat.json"},
                  folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.out.starts_with("ok   cpu:flash2 q-outer B1 H2 "));
  CHECK(result.out.find(", 3 runs: dk same dq same dv same lse same o same") != std::string::npos);
  const RunRecord record = read_run_record((folder.path() / "repeat.json").string());
  REQUIRE(record.runs.size() == 1);
  CHECK(record.runs[0].repeats.size() == 5);
  for (const auto& of_tensor : record.runs[0].repeats) {
    const auto& [tensor, repeat] = of_tensor;
    CAPTURE(of_tensor.first);
    CHECK(repeat == RepeatRecord{.runs = 3, .bound = record.runs[0].error.at(tensor).bound});
  }
}

TEST_CASE("a sweep prints failures and a summary, and nothing with --quiet") {
  std::vector<std::string> sweep = {"verify", "--quick", "--kernel", "cpu:flash1", "--shard", "1/8"};
  const ProgramResult result = run_program(sweep);
  CHECK(result.exit_code == 0);
  CHECK(count(result.out, "\n") == 1 + count(result.out, " takes about "));  // said where it is long
  CHECK(result.out.find(" passed, 0 failed") != std::string::npos);
  sweep.push_back("--quiet");
  const ProgramResult quiet = run_program(sweep);
  CHECK(quiet.exit_code == 0);
  CHECK(quiet.out + quiet.err == "");
}

TEST_CASE("verify --rows judges sampled rows of a long problem") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"verify", "--rows", "8", "--kernel", "cpu:flash2", "--heads", "2", "--seqlen", "1500",
                   "--head-dim", "32", "--dtype", "fp16", "--causal", "--json", "rows.json"},
                  folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("8 rows of each output, 2 runs: 2 passed, 0 failed") != std::string::npos);
  const RunRecord record = read_run_record((folder.path() / "rows.json").string());
  REQUIRE(record.runs.size() == 2);
  CHECK(record.runs[0].error.size() == 2);
  CHECK(record.runs[1].error.size() == 5);
  for (const auto& of_tensor : record.runs[1].error) {
    const auto& [tensor, error] = of_tensor;
    CAPTURE(of_tensor.first);
    REQUIRE(error.share);
    CHECK(*error.share > 0);
    CHECK(*error.share <= 1);
  }
}

TEST_CASE("verify refuses what it cannot judge") {
  check_refused({{"verify", "--rows", "0"}, {"rows = 0", "1 ... "}});
  check_refused({{"verify", "--rows", "8", "--quick"}, {"rows", "--quick"}});
  check_refused({{"verify", "--inputs", "abnormal"}, {"inputs", "abnormal", "normal, outlier"}});
  check_refused({{"verify", "--quick", "--full"}, {"--quick", "--full"}});
  check_refused({{"verify", "--quick", "--dtype", "fp16"}, {"--quick must stand without"}});
  check_refused({{"verify", "--repeat", "1"}, {"repeat", "1", "2 ... "}});
  // Before exact results are computed, for minutes.
  check_refused(
      {{"verify", "--dtype", "fp8e4m3", "--pass", "bwd", "--seqlen", "16k"}, {"fp8e4m3", "backward"}});
  const ProgramResult large = run_program({"verify", "--seqlen", "1000000", "--heads", "64"});
  CHECK(large.exit_code == 3);
  CHECK(large.err.find("GB of memory") != std::string::npos);
  CHECK(large.out == "");
}

}  // namespace tilescope::testing
