// SPDX-License-Identifier: Apache-2.0
// `tilescope explain`, from outside, and the report of what it writes.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/explain/explain_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "profiler/records/json_fields.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

const std::string kRecord = TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json.gz";
const std::vector<std::string> kProblem = {"--batch", "2",          "--heads", "16",      "--seqlen",
                                           "4096",    "--head-dim", "128",     "--dtype", "fp16"};

std::vector<std::string> explain_command(std::vector<std::string> more) {
  std::vector<std::string> command = {"explain", kRecord};
  command.insert(command.end(), kProblem.begin(), kProblem.end());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

}  // namespace

TEST_CASE("explain names program and tile, and report prints what it wrote") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      explain_command({"--kernel-filter", "sdpa_sm90_flash_fprop", "--json", "e.json"}), folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  for (const char* part :
       {"explained: forward\n", "128 x any", "left over 0 B", "1 of 1 kernels explained"}) {
    CAPTURE(part);
    CHECK(result.out.find(part) != std::string::npos);
  }
  const std::string path = (folder.path() / "e.json").string();
  const std::string text = read_text_file(path);
  CHECK(nlohmann::json::parse(text).at("kernels")[0].at("explanation").at("agreement") == "explained");
  const ExplainRecord record = parse_explain_record(path, text);
  CHECK(to_json_text(record) == text);

  const ProgramResult report = run_program({"report", "e.json", "--out", "pages"}, folder.path());
  CHECK(report.exit_code == 0);
  const std::string page = read_text_file((folder.path() / "pages/report.md").string());
  CHECK(page.find("| `cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f...` 132x1x1 | forward, **128 "
                  "x any** |") != std::string::npos);
  CHECK(page.find("--kernel-filter sdpa_sm90_flash_fprop") != std::string::npos);
}

TEST_CASE("explain counts launches as profile does, and one direction can be asked for") {
  const ProgramResult second =
      run_program(explain_command({"--kernel-filter", "triton", "--skip", "1", "--count", "2"}));
  CHECK(second.out.find("triton_attn_forward") == std::string::npos);
  CHECK(second.out.find("2 of 2 kernels explained") != std::string::npos);
  const ProgramResult forward =
      run_program(explain_command({"--kernel-filter", "triton_attn_dkdv", "--pass", "fwd"}));
  CHECK(forward.exit_code == 0);
  CHECK(forward.out.find("0 of 1 kernels explained\nis B2 H16 N4096 D128 fp16 the right problem?\n") !=
        std::string::npos);
  CHECK(second.out.find("right problem") == std::string::npos);
}

TEST_CASE("explain tells causes on lines that fit, and no share that shows as nothing") {
  const ProgramResult all = run_program(explain_command({}));
  REQUIRE(all.exit_code == 0);
  std::istringstream lines(all.out);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
    CHECK(line.find("+0.000 %") == std::string::npos);
    CHECK(line.find("-0.000 %") == std::string::npos);
  }
  CHECK(all.out.find("left over +256 B\n") != std::string::npos);
  CHECK(all.out.find(",\n                     ") != std::string::npos);
}

TEST_CASE("explain doubts a wrong number of heads, and says what the bytes leave open") {
  std::vector<std::string> wrong = explain_command({});
  wrong[5] = "8";  // --heads
  const ProgramResult doubted = run_program(wrong);
  CHECK(doubted.out.find("not certain: backward, dK and dV") != std::string::npos);
  CHECK(doubted.out.find("not that problem?  32 heads over the batch fit better: backward, dQ, 128 x any") !=
        std::string::npos);
  CHECK(
      doubted.out.find("0 of 19 kernels explained\nis B2 H8 N4096 D128 fp16 the right problem? 9 fit better "
                       "with 32 heads over the batch\n") != std::string::npos);
  CHECK(doubted.out.find("the same bytes have") == std::string::npos);
  const ProgramResult right = run_program(explain_command({"--kernel-filter", "flash_fwd"}));
  CHECK(right.out.find(
            "1 of 1 kernels explained\nthe same bytes have: another split of the 32 heads over batch "
            "and heads, or --heads-kv 1, 2, 4, 8\n") != std::string::npos);
}

TEST_CASE("explain refuses what it cannot hold against a problem, and writes nothing") {
  const TemporaryFolder folder;
  const std::string damaged = (folder.path() / "damaged.json").string();
  std::ofstream(damaged) << read_text_file(kRecord).substr(0, 2000);
  const std::string timed = (folder.path() / "timed.json").string();
  std::ofstream(timed)
      << R"({"schema": "tilescope.kernels/1", "argv": [], "when": "", "metrics": "", "machine": [],
    "complete": true, "kernels": [{"name": "k", "launch": {"grid": [1, 1, 1], "block": [1, 1, 1]}}]})";
  const std::string simulated = (folder.path() / "simulated.json").string();
  CHECK(run_program({"simulate", "--seqlen", "256", "--json", simulated}).exit_code == 0);
  const BadCommand cases[] = {
      {{"explain"}, {"RECORD", "''"}},
      {{"explain", simulated}, {simulated, "profile --json FILE -- COMMAND", "tilescope.run/1"}},
      {{"explain", "/nonexistent.json"}, {"/nonexistent.json", "No such file"}},
      {{"explain", damaged}, {damaged}},
      {{"explain", timed, "--heads", "16"}, {"sm_l2_read_bytes"}},
      {{"explain", kRecord}, {"problem", "(none)", "--heads 16", "--preset NAME"}},
      {{"explain", kRecord, "--causal", "--dtype", "fp16"}, {"problem", "(none)"}},
      {explain_command({"--kernel-filter", "nothing"}), {kRecord, "--kernel-filter"}},
      {explain_command({"--kernel-filter", "("}), {"--kernel-filter", "regular expression"}},
      {explain_command({"--skip", "-1"}), {"--skip", "-1", "at least 0"}},
      {explain_command({"--count", "0"}), {"--count", "0", "at least 1"}},
      {explain_command({"--heads-kv", "5"}), {"heads_kv", "5"}},
  };
  for (const BadCommand& bad : cases) check_refused(bad);
}

}  // namespace tilescope::testing
