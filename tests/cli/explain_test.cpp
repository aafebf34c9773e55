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
const std::vector<std::string> kProblemWords = {"--batch", "2",          "--heads", "16",      "--seqlen",
                                                "4096",    "--head-dim", "128",     "--dtype", "fp16"};

std::vector<std::string> explain_command(std::vector<std::string> more) {
  std::vector<std::string> command = {"explain", kRecord};
  command.insert(command.end(), kProblemWords.begin(), kProblemWords.end());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

}  // namespace

TEST_CASE("explain says must, moved and why, and report prints what it wrote") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      explain_command({"--kernel-filter", "sdpa_sm90_flash_fprop", "--json", "e.json"}), folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  for (const char* part :
       {"moves 16.4x what it must at SM<->L2, 1.00x at DRAM (reads), because of tiles read again\n",
        "explained: forward, 128 x 128; ", " % by chance", "must move", "21.7x",
        "SM<->L2 +2.080 GB read: tiles read again (closed form)", "left over: 0 B read, 0 B written",
        "1 of 1 kernels explained"}) {
    CAPTURE(part);
    CHECK(contains(result.out, part));
  }
  const std::string path = (folder.path() / "e.json").string();
  const std::string text = read_text_file(path);
  const auto explanation = nlohmann::json::parse(text).at("kernels")[0].at("explanation");
  CHECK(explanation.at("agreement") == "explained");
  CHECK(explanation.at("by_chance") < 0.02);
  CHECK(explanation.at("answer").at("must").at("write_bytes") == 34078720);
  CHECK(explanation.at("answer").at("multiple").at("dram") > 1);
  const ExplainRecord record = parse_explain_record(path, text);
  CHECK(to_json_text(record) == text);

  const ProgramResult report = run_program({"report", "e.json", "--out", "pages"}, folder.path());
  CHECK(report.exit_code == 0);
  const std::string page = read_text_file((folder.path() / "pages/report.md").string());
  CHECK(contains(page,
                 "| `cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f...` 132x1x1 | forward, **128 "
                 "x 128**; 0."));
  CHECK(contains(page, "--kernel-filter sdpa_sm90_flash_fprop"));
  CHECK(contains(page, "SM<->L2 x must"));
  CHECK(contains(page, "would help"));
}

TEST_CASE("explain counts launches as profile does, and one direction can be asked for") {
  const ProgramResult second =
      run_program(explain_command({"--kernel-filter", "triton", "--skip", "1", "--count", "2"}));
  CHECK_FALSE(contains(second.out, "triton_attn_forward"));
  CHECK(contains(second.out, "2 of 2 kernels explained"));
  const ProgramResult forward =
      run_program(explain_command({"--kernel-filter", "triton_attn_dkdv", "--pass", "fwd"}));
  CHECK(forward.exit_code == 0);
  CHECK(contains(forward.out, "its name states the other direction"));
  CHECK(contains(forward.out, "0 of 1 kernels explained; of kernels that are no attention --reads BYTES"));
}

TEST_CASE("explain keeps its lines short, and tells no share that shows as nothing") {
  const ProgramResult all = run_program(explain_command({}));
  REQUIRE(all.exit_code == 0);
  std::istringstream lines(all.out);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    if (!contains(line, "--reads")) CHECK(line.size() <= 100);
  }
  CHECK(contains(all.out, "under 0.1 % by chance"));
  CHECK_FALSE(contains(all.out, " 0.0 %"));
  CHECK(contains(
      all.out,
      "14 of 14 kernels explained, the least sure of them 0.4 % by chance; 5 more are no attention by"));
}

TEST_CASE(
    "a problem that the kernels speak against is refused with the number that disagrees, and nothing else") {
  std::vector<std::string> heads = explain_command({});
  heads[5] = "8";
  check_refused({heads,
                 {"B2 H8 N4096 D128 fp16 fits 0 of 19 kernels", "9 fit with 32 heads over the batch",
                  "batch x heads is 16"}});
  check_refused({explain_command({"--causal"}), {"fits 0 of 19 kernels", "causal is yes", "fit with no"}});
  heads.insert(heads.end(), {"--count", "1"});
  check_refused({heads, {"fits 0 of 1 kernels; 1 fits with 32 heads"}});
  std::vector<std::string> length = explain_command({"--kernel-filter", "flash_fwd"});
  length[7] = "2048";
  check_refused({length, {"seqlen is 2048", "1 fits with 4096"}});
  const ProgramResult right = run_program(explain_command({"--kernel-filter", "flash_fwd"}));
  CHECK(contains(right.out,
                 "1 of 1 kernels explained, the least sure of them 0.1 % by chance\nthe same bytes have: "
                 "another split of "
                 "the 32 heads over "
                 "batch and heads, or --heads-kv 1, 2, 4, 8\n"));
}

TEST_CASE("explain writes Markdown, and takes what other kernels must move") {
  const ProgramResult table =
      run_program(explain_command({"--kernel-filter", "flash_fwd", "--format", "md"}));
  CHECK(contains(table.out, "| kernel | must move | SM<->L2 | x must | DRAM read | x must | why |"));
  const ProgramResult csv = run_program(explain_command({"--kernel-filter", "flash_fwd", "--format", "csv"}));
  CHECK(contains(csv.out, ",DRAM read [B],DRAM read x must read,"));  // its writes were not counted
  CHECK(contains(table.out, "- `pytorch_flash::flash_fwd_kernel"));
  CHECK(contains(table.out, "tiles of 256 x 64"));
  const ProgramResult copy = run_program({"explain", kRecord, "--kernel-filter", "elementwise_kernel<128, 2,",
                                          "--reads", "64MiB", "--writes", "64MiB"});
  CAPTURE(copy.err);
  CHECK(contains(copy.out, "67.11 MB  1.00x"));
  CHECK(contains(copy.out, "each byte has its cause"));
  CHECK_FALSE(contains(copy.out, "explained"));  // what no tile program is asked for
  CHECK(copy.out.starts_with("each must read 67.11 MB and write 67.11 MB, as --reads and --writes say\n"));
}

TEST_CASE("explain takes our own runs, which name their problem, and tables of Nsight Compute") {
  const ProgramResult own =
      run_program({"explain", TILESCOPE_SOURCE_DIR "/reports/data/bytes-h200-flash3-d256.json.gz"});
  CAPTURE(own.err);
  CHECK(own.exit_code == 0);
  CHECK(contains(own.out, "gpu:flash3 dkdvdq"));
  CHECK(contains(own.out, "explained: backward, dQ reduced, (32, 64) x 64"));
  const TemporaryFolder folder;
  const std::string csv = (folder.path() / "ncu.csv").string();
  std::ofstream(csv)
      << R"csv("ID","Kernel Name","Block Size","Grid Size","l1tex__m_xbar2l1tex_read_bytes.sum",)csv"
      << R"csv("lts__t_sectors_srcunit_tex_op_write.sum","lts__t_sectors_srcunit_tex_op_red.sum",)csv"
      << R"csv("lts__t_sectors_srcunit_tex_op_atom.sum","launch__registers_per_thread",)csv"
      << R"csv("launch__shared_mem_per_block"
"","","","","byte","sector","sector","sector","register/thread","byte/block"
"0","attn_fwd","(256, 1, 1)","(32, 32, 1)","2181038080","1064960","0","0","150","98304"
)csv";
  const ProgramResult ncu = run_program({"explain", csv, "--batch", "2", "--heads", "16", "--seqlen", "4096",
                                         "--head-dim", "128", "--dtype", "fp16"});
  CAPTURE(ncu.err);
  CHECK(contains(ncu.out, "explained: forward, 128 x"));
  std::ofstream(csv) << R"csv("ID","Kernel Name","Block Size","Grid Size","l1tex__m_xbar2l1tex_read_bytes.sum"
"","","","","byte"
"0","attn","(1, 1)csv";
  check_refused({{"explain", csv, "--heads", "16"}, {csv, "cells"}});
}

TEST_CASE("explain takes the page for people that Nsight Compute wrote of a launch on an H200") {
  const std::string page = TILESCOPE_SOURCE_DIR "/tests/profiler/records/ncu_raw_page.txt";
  const std::vector<std::string> problem = {"--heads",    "8",  "--seqlen", "2048", "--causal",
                                            "--head-dim", "64", "--dtype",  "fp16"};
  const auto explain_page = [&problem](const std::string& path) {
    std::vector<std::string> words = {"explain", path};
    words.insert(words.end(), problem.begin(), problem.end());
    return run_program(words);
  };
  const ProgramResult lacks = explain_page(page);
  CHECK(lacks.exit_code == 2);
  CHECK(contains(lacks.err, "must have sm_l2_write_bytes in the record"));
  const TemporaryFolder folder;
  const std::string whole = (folder.path() / "page.txt").string();
  std::ofstream(whole) << read_text_file(page)  // the sectors of the bytes that the page says L1 wrote
                       << "  lts__t_sectors_srcunit_tex_op_write.sum sector 225,024\n"
                          "  lts__t_sectors_srcunit_tex_op_red.sum sector 0\n"
                          "  lts__t_sectors_srcunit_tex_op_atom.sum sector 0\n";
  const ProgramResult told = explain_page(whole);
  CAPTURE(told.err);
  CHECK(told.exit_code == 0);
  CHECK(contains(told.out, "explained: forward, 128 x 128, with 5.038 MB of spills"));
}

TEST_CASE("a program of one's own is simulated, and held against kernels") {
  const std::string examples = TILESCOPE_SOURCE_DIR "/examples/programs/";
  const ProgramResult simulated =
      run_program({"simulate", "--program", examples + "flash2.tiles", "--kernel", "cpu:flash2", "--tile",
                   "128x64", "--heads", "16", "--seqlen", "4096", "--head-dim", "128", "--dtype", "fp16"});
  CAPTURE(simulated.err);
  CHECK(simulated.exit_code == 0);
  std::vector<std::string> bytes;  // at both boundaries, on the lines of the two
  std::istringstream lines(simulated.out);
  for (std::string line; std::getline(lines, line);) {
    if (const auto at = line.find("128x64"); at != std::string::npos) bytes.push_back(line.substr(at));
  }
  REQUIRE(bytes.size() == 2);
  CHECK(bytes[0] == bytes[1]);
  const ProgramResult explained =
      run_program(explain_command({"--kernel-filter", "flash_fwd", "--program", examples + "flash2.tiles"}));
  CHECK(contains(explained.out, "1 of 1 kernels explained"));
  const TemporaryFolder folder;
  const std::string mine = (folder.path() / "mine.tiles").string();
  std::ofstream(mine) << "tile 128 x 64\nforward\n  pass forward\n    cta m h\n      load q[n]\n";
  check_refused({{"simulate", "--program", mine}, {"mine.tiles, line 5", "cut by m"}});
  check_refused(
      {{"simulate", "--program", examples + "flash2.tiles", "--softcap", "50"}, {"program", "modifiers"}});
  check_refused({explain_command({"--program", mine}), {"mine.tiles, line 5"}});
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
      {{"explain", simulated}, {simulated, "none with SM<->L2 counters", "--metrics traffic,causes"}},
      {{"explain", "/nonexistent.json"}, {"/nonexistent.json", "No such file"}},
      {{"explain", damaged}, {damaged}},
      {{"explain", timed, "--heads", "16"}, {"sm_l2_read_bytes", "--metrics traffic,causes"}},
      {{"explain", TILESCOPE_SOURCE_DIR "/README.md", "--heads", "16"},
       {"README.md", "neither JSON nor a table"}},
      {{"profile", "--explain", "--", "true"}, {"--explain", "the problem that it computes"}},
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
