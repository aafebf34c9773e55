// SPDX-License-Identifier: Apache-2.0
// Bad problems, kernels and paths, given to every command that takes them: the same sentence from each.
#include <fstream>

#include "analysis/records/files/text_file.hpp"
#include "profiler/records/json_fields.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

/// Each of `commands` with the arguments of `bad` behind it.
void check_refused_by(const std::vector<std::vector<std::string>>& commands,
                      const std::vector<BadCommand>& bads) {
  for (const std::vector<std::string>& command : commands) {
    for (BadCommand bad : bads) {
      bad.arguments.insert(bad.arguments.begin(), command.begin(), command.end());
      check_refused(bad);
    }
  }
}

}  // namespace

TEST_CASE("bad problems are refused by every command that takes one") {
  check_refused_by({{"simulate"}, {"verify"}, {"run", "--kernel", "cpu:flash2", "--out", "results"}},
                   {
                       {{"--batch", "0"}, {"batch", "0", "at least 1"}},
                       {{"--heads", "-8"}, {"heads", "-8", "at least 1"}},
                       {{"--heads", "8", "--heads-kv", "3"}, {"heads_kv", "3", "heads = 8"}},
                       {{"--seqlen", "0"}, {"seqlen_q", "0", "1 ... 268435456"}},
                       {{"--seqlen-k", "12e3"}, {"seqlen_k", "12e3", "integer"}},
                       {{"--head-dim", "577"}, {"head_dim", "577", "1 ... 576"}},
                       {{"--head-dim-v", "0"}, {"head_dim_v", "0", "1 ... 576"}},
                       {{"--page-size", "7"}, {"page_size", "7", "power of 2"}},
                       {{"--page-size", "16", "--pass", "bwd"}, {"pass", "bwd", "must be fwd", "page_size"}},
                       {{"--head-dim-v", "577"}, {"head_dim_v", "577", "1 ... 576"}},
                       {{"--softcap", "-50"}, {"softcap", "-50", "from 0 on"}},
                       {{"--softcap", "50%"}, {"softcap", "50%", "from 0 on"}},
                       {{"--alibi", "--scale", "0"}, {"scale", "0", "alibi"}},
                       {{"--dtype", "fp23"}, {"dtype", "fp23", "fp32"}},
                       {{"--window", "5"}, {"window", "5", "LEFT,RIGHT"}},
                       {{"--dropout", "1"}, {"dropout", "1", "[0, 1)"}},
                       {{"--dtype", "fp8e4m3", "--descale-k", "0"}, {"descale_k", "'0'", "random or data"}},
                       {{"--dtype", "fp8e4m3", "--descale-k", "given"}, {"descale_k", "random or data"}},
                       {{"--descale-v", "random"}, {"descale_v", "random", "fp8", "fp32"}},
                       {{"--descale-block", "64"}, {"descale_block", "64"}},
                       {{"--mask", "sinks:4"}, {"mask", "sinks", "did you mean sink"}},
                       {{"--mask", "window:1024"}, {"mask", "window:1024", "--window 1023,0"}},
                       {{"--mask", "prefix:4,x"}, {"mask", "prefix:4,x", "prefix:N"}},
                       {{"--mask", "prefix:"}, {"mask", "prefix:", "prefix:N"}},
                       {{"--mask", "sink:4;5"}, {"mask", "sink:4;5", "sink:N"}},
                       {{"--mask", "prefix", "--causal"}, {"mask", "prefix", "one number"}},
                       {{"--mask", "prefix:4"}, {"mask", "prefix:4", "--causal"}},
                       {{"--mask", "sink:4", "--causal"}, {"mask", "sink:4", "--window"}},
                       {{"--mask", "sink:2k", "--window", "9,0"}, {"mask", "sink:2048", "1 ... seqlen_k"}},
                       {{"--mask", "documents:5,6", "--seqlen", "12"}, {"mask", "seqlen = 12, not to 11"}},
                       {{"--mask", "documents:1k", "--seqlen-k", "13"}, {"mask", "as many queries"}},
                       {{"--mask", "blocks:512;0"}, {"mask", "block of queries: 2 in all, not 1"}},
                       {{"--mask", "blocks:512;0;1,0"}, {"mask", "ascending", "not 0 in row 1"}},
                       {{"--mask", "blocks:512;1;", "--causal"}, {"mask", "no query sees a key"}},
                       {{"--mask", "tree:0,1", "--seqlen-q", "3"}, {"mask", "tree:0,1", "seqlen_q = 3"}},
                       {{"--mask", "tree:0,2", "--seqlen-q", "2"}, {"mask", "not 2 of node 2"}},
                       {{"--preset", "llama3-9b"}, {"preset", "llama3-9b", "did you mean llama3-8b"}},
                       {{"--pass", "both"}, {"pass", "both", "fwd+bwd"}},
                       {{"--batch", "4611686018427387904", "--heads", "4"}, {"batch * heads", "2147483647"}},
                       {{"--batch", "100000", "--seqlen", "200000000"},
                        {"seqlen_q", "200000000", "too large: its bytes are 2^63"}},
                       {{"--dtype", "fp8e4m3", "--pass", "bwd"}, {"kernel", "fp8e4m3", "backward"}},
                       {{"--seqln", "5"}, {"option", "--seqln", "did you mean --seqlen"}},
                       {{"--seqlen"}, {"--seqlen", "required"}},
                   });
}

TEST_CASE("bad kernels and tiles are refused by every command that takes them") {
  check_refused_by(
      {{"simulate"}, {"verify", "--preset", "small"}, {"run", "--out", "results"}},
      {
          {{"--head-dim-v", "32", "--kernel", "cpu:flash1"}, {"head_dim_v", "cpu:flash2"}},
          {{"--softcap", "50", "--kernel", "cpu:flash1"}, {"softcap", "cpu:flash2"}},
          {{"--alibi", "--kernel", "cpu:flash1"}, {"alibi", "cpu:flash2"}},
          {{"--learned-sink", "--kernel", "cpu:flash1"}, {"learned_sink", "cpu:flash2"}},
          {{"--kernel", "cpu:flash9"}, {"kernel", "cpu:flash9", "did you mean cpu:flash"}},
          {{"--tile", "0x64"}, {"tile", "0x64", "1 ... 4096"}},
          {{"--backward", "sideways"},
           {"backward", "sideways", "split, fused, q-outer, single-launch or ordered"}},
          {{"--order", "random"}, {"order", "random", "row-major"}},
          {{"--scan", "random"}, {"scan", "random", "ascending"}},
          {{"--dtype", "fp8e4m3", "--descale-q", "2", "--kernel", "cpu:flash1"},
           {"cpu:flash1", "descale_q", "left out"}},
          {{"--dtype", "fp8e4m3", "--descale-block", "32x48", "--tile", "16x16", "--kernel", "cpu:flash2"},
           {"cpu:flash2", "descale_block 16x16", "32x48"}},
          {{"--diagonal-slices", "0"}, {"diagonal-slices", "0", "1 ... 16"}},
          {{"--diagonal-slices", "3", "--tile", "64x64", "--kernel", "cpu:flash2"},
           {"cpu:flash2", "diagonal-slices 3", "64x64"}},
          {{"--diagonal-slices", "2", "--kernel", "cpu:flash1"},
           {"cpu:flash1", "diagonal-slices 2", "whole"}},
          {{"--splits", "0"}, {"splits", "0", "fixed:KEYS"}},
          {{"--splits", "fixed:100", "--tile", "64x64", "--kernel", "cpu:flash2"},
           {"splits", "fixed:100", "multiple of the 64 keys"}},
          {{"--pack-gqa", "--kernel", "cpu:flash1"}, {"cpu:flash1", "packs no heads", "runs on cpu:flash2"}},
          {{"--splits", "2", "--diagonal-slices", "2", "--kernel", "cpu:flash2"},
           {"cpu:flash2", "without splits", "diagonal-slices 2"}},
      });
  check_refused({{"simulate", "--splits", "4", "--kernel", "gpu:flash2-mma", "--dtype", "bf16"},
                 {"gpu:flash2-mma", "no split keys", "runs on cpu:flash2"}});
  check_refused({{"simulate", "--pack-gqa", "on", "--heads", "14", "--heads-kv", "2", "--causal", "--kernel",
                  "gpu:flash3", "--dtype", "bf16"},
                 {"gpu:flash3", "packs 2, 4 or 8 query heads of a key/value head under a mask, not 7",
                  "runs on cpu:flash2"}});
  check_refused_by(
      {{"simulate", "--kernel", "gpu:flash3", "--dtype", "bf16", "--mask", "sink:4", "--window", "99,0"}},
      {{{"--head-dim", "192"},
        {"gpu:flash3", "up to head_dim 128, not at 192", "runs on cpu:standard", "gpu:flash2-mma"}},
       {{"--splits", "2"}, {"gpu:flash3", "but not with split keys", "runs on cpu:flash2"}},
       {{"--pass", "bwd", "--head-dim", "192"},
        {"gpu:flash3", "up to head_dim 128, not at 192", "runs on cpu:standard", "gpu:flash2-mma"}},
       {{"--pass", "bwd", "--backward", "ordered"},
        {"gpu:flash3", "but not in an ordered backward pass", "runs on cpu:standard"}}});
  check_refused_by(
      {{"simulate", "--kernel", "gpu:flash3", "--alibi", "--learned-sink"}},
      {{{"--dtype", "fp8e4m3"}, {"gpu:flash3", "modifies scores, but not in fp8"}},
       {{"--dtype", "bf16", "--splits", "2"},
        {"gpu:flash3", "but not with split keys", "runs on cpu:flash2"}},
       {{"--dtype", "bf16", "--log-bias", "1"}, {"gpu:flash3", "no logarithmic bias", "gpu:flash2-mma"}},
       {{"--dtype", "bf16", "--pass", "bwd"}, {"gpu:flash3", "no ALiBi", "cpu:flash2"}}});
}

TEST_CASE("key tiles are shared by no more CTAs than have a query tile, in the orders that share them") {
  const std::vector<std::string> shared = {"simulate", "--pass",  "bwd",     "--kernel", "gpu:flash3",
                                           "--seqlen", "300",     "--heads", "4",        "--heads-kv",
                                           "2",        "--dtype", "fp16",    "--tile",   "128x128"};
  check_refused_by({shared},
                   {{{"--query-splits", "8"}, {"query-splits", "8", "2 query heads with 3 query tiles"}}});
  std::vector<std::string> fits = shared;
  fits.insert(fits.end(), {"--query-splits", "6"});
  CHECK(run_program(fits).exit_code == 0);
  check_refused({{"simulate", "--kernel", "gpu:flash2-mma", "--backward", "split", "--query-splits", "7"},
                 {"query-splits", "7", "--backward split", "fused and ordered"}});
}

TEST_CASE("a flag with a word, and a kernel that has none to stand beside, are refused with what is meant") {
  testing::check_refused({{"simulate", "--causal=maybe"}, {"--causal", "maybe", "a flag stands alone"}});
  testing::check_refused({{"compare", "cpu:flash1"}, {"B", "compare A B"}});
}

TEST_CASE("an output that cannot be written is refused before the work") {
  check_refused_by({{"simulate"}, {"verify", "--quick"}, {"list", "kernels"}},
                   {{{"--json", "/nonexistent/x.json"}, {"--json", "/nonexistent/x.json"}}});
  check_refused({{"demo", "--out", "/proc/nowhere"}, {"--out", "/proc/nowhere", "can be written"}});
}

TEST_CASE("without a device GPU kernels are simulated, and not run: exit code 3, with what would work") {
  if (std::filesystem::exists("/dev/nvidiactl")) return;
  const std::vector<std::string> problem = {"--kernel", "gpu:flash2-simt", "--preset",
                                            "small",    "--dtype",         "fp32"};
  const auto with_problem = [&problem](std::vector<std::string> words) {
    words.insert(words.end(), problem.begin(), problem.end());
    return words;
  };
  const TemporaryFolder folder;
  CHECK(run_program(with_problem({"simulate", "--quiet"}), folder.path()).exit_code == 0);
  for (const auto& words : {with_problem({"verify"}), with_problem({"run", "--out", "results"})}) {
    const ProgramResult result = run_program(words, folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 3);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.err.find("cpu: kernels") != std::string::npos);
  }
  CHECK(folder.empty());
}

TEST_CASE("slips that are often made are answered in the user's words") {
  const TemporaryFolder folder;
  const std::string other = (folder.path() / "other.json").string();
  std::ofstream(other) << R"({"a": 1})";
  const BadCommand cases[] = {
      {{"simulate", "--l2-bytes", "50"}, {"l2-bytes = 50: is 50 bytes: say the unit, as in 50MB or 50MiB"}},
      {{"simulate", "--sweep", "causal=maybe"}, {"sweep causal = 'maybe': must be yes or no"}},
      {{"simulate", "--frobnicate"},
       {"simulate has no option --frobnicate: tilescope simulate --help lists"}},
      {{"verify", "--machine", "h200"}, {"verify has no option --machine"}},
      {{"verify", "--quick", "--kernel", "cpu:flash2", "--dtype", "fp16"},
       {"--quick must stand without options of one problem"}},
      {{"diff", other, other}, {"other.json is not a TileScope record"}},
      {{"report", other}, {"other.json is not a TileScope record"}},
      {{"explain", other, "--seqlen", "1k"}, {"other.json is not a TileScope record"}},
      {{"compare", "cpu:flash1", "cpu:flash2", "--machine", "h200", "--machine", "h200"},
       {"--machine is given 2 times: it may be given once"}},
  };
  for (const BadCommand& bad : cases) check_refused(bad);
  const auto heads = [](const char* values) {
    return run_program(
               {"simulate", "--kernel", "cpu:flash2", "--closed-form", "--seqlen", "256", "--sweep", values})
        .out;
  };
  CHECK(heads("causal=0,1") == heads("causal=no,yes"));
}

TEST_CASE("unknown machines are refused with the nearest") {
  check_refused({{"simulate", "--machine", "h20"}, {"machine", "h20", "did you mean h200"}});
  check_refused({{"simulate", "--machine", "nowhere.json"}, {"nowhere.json", "No such file"}});
}

TEST_CASE("a record that was written by halves is told from one that is none") {
  const TemporaryFolder folder;
  REQUIRE(run_program({"simulate", "--closed-form", "--seqlen", "64", "--json", "whole.json"}, folder.path())
              .exit_code == 0);
  const std::string whole = read_text_file((folder.path() / "whole.json").string());
  const auto refusal = [&folder](const std::string& text) {
    std::ofstream(folder.path() / "part.json") << text;
    const ProgramResult result = run_program({"report", "part.json"}, folder.path());
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refusal(whole.substr(0, whole.size() / 2)).find("it ends in the middle") != std::string::npos);
  CHECK(refusal("") == "tilescope: part.json is empty\n");
  CHECK(refusal("# Notes").find("not valid JSON: parse error at line 1") != std::string::npos);
}

TEST_CASE("kernels may stand in a list, and element types have PyTorch's names too") {
  const ProgramResult both =
      run_program({"verify", "--kernel", "cpu:flash1,cpu:flash2", "--seqlen", "64", "--dtype", "bfloat16"});
  CHECK(both.out.find("2 runs on 1 problem: 2 passed") != std::string::npos);
  CHECK(both.out.find("D64 bf16") != std::string::npos);
  check_refused({{"verify", "--kernel", "cpu:flash1,cpu:flash3"}, {"cpu:flash3", "did you mean"}});
  check_refused({{"run", "--kernel", "cpu:flash1,cpu:flash2", "--out", "o"}, {"cpu:flash1,cpu:flash2"}});
  check_refused({{"simulate", "--dtype", "half"}, {"dtype", "half", "bf16"}});
  check_refused({{"simulate", "--sweep", "seqlen=1k.."}, {"sweep seqlen", "1k..", "both ends"}});
  check_refused({{"simulate", "--seqlen"}, {"--seqlen = '': N is required after it"}});
}

}  // namespace tilescope::testing
