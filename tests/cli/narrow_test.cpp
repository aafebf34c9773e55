// SPDX-License-Identifier: Apache-2.0
// What every command prints on a terminal of 60 columns.
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>

#include "analysis/cli/text_table.hpp"
#include "analysis/records/files/text_file.hpp"
#include "tests/cli/diff_records.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

constexpr std::size_t kColumns = 60;

/// $COLUMNS, while it lives.
struct NarrowTerminal {
  NarrowTerminal() { setenv("COLUMNS", std::to_string(kColumns).c_str(), 1); }
  ~NarrowTerminal() { unsetenv("COLUMNS"); }
};

/// Lines that somebody copies: a command, or one word, as a path or a counter is.
bool stays_whole(std::string line) {
  line.erase(0, line.find_first_not_of(' '));
  return line.starts_with("tilescope ") || line.starts_with("./tilescope ") ||
         line.find(' ') == std::string::npos;
}

/// @return how many lines were looked at
std::size_t check_narrow(const std::string& text) {
  std::size_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    CHECK((line.size() <= kColumns || stays_whole(line)));
  }
  return count;
}

using WordList = std::vector<std::string>;

const std::string kSource = TILESCOPE_SOURCE_DIR;

/// That end well without a GPU, each in less than a second.
std::vector<WordList> printing_commands() {
  const std::string transpose = kSource + "/examples/emulate/transpose",
                    mha = kSource + "/reports/foreign/mha.json.gz";
  const WordList small = {"--seqlen", "256", "--heads", "2"};
  std::vector<WordList> all = {
      {},
      {"--help"},
      {"list", "machines", "h200"},
      {"diff", "base.json", "now.json", "--budget", "dram_read_bytes=200%", "--allow-gone", "--explain"},
      {"emulate", transpose + ".ptx", "--launch", transpose + ".json", "--races"},
      {"simulate", "--preset", "gpt2-medium", "--seqlen", "256", "--kernel", "cpu:standard,gpu:flash2-mma",
       "--pass", "fwd+bwd", "--explain-model"},
      {"simulate", "--sweep", "seqlen=128,256", "--sweep", "causal=no,yes", "--kernel", "cpu:flash2"},
      {"simulate", "--gpus", "2", "--schedule", "ring,zigzag", "--seqlen", "1k", "--dtype", "fp16"},
      {"simulate", "--model", "llama3-70b", "--tp", "8", "--decode", "--seqlen", "1k", "--machine",
       "h200,a100-80gb"},
      {"explain", mha, "--batch", "2", "--heads", "16", "--seqlen", "4096", "--head-dim", "128", "--dtype",
       "fp16", "--kernel-filter", "flash"},
      {"study", "seqlen", "--dry-run"},
      {"study", "parallelism", "--shard", "2/16", "--json", "study.json"},
      {"verify", "--preset", "small", "--kernel", "cpu:flash2", "--pass", "fwd+bwd"},
      {"verify", "--seqlen", "64", "--kernel", "cpu:flash2", "--rows", "4"},
      {"verify", "--seqlen", "64", "--kernel", "cpu:flash2", "--repeat", "2"},
      {"verify", "--seqlen", "256", "--gpus", "2", "--schedule", "ring"},
      {"run", "--seqlen", "64", "--out", "results"},
      {"bench", "--seqlen", "64", "--kernel", "cpu:flash2", "--seconds", "0.001", "--json", "bench.json"},
      {"ceilings", "--from", kSource + "/reports/profiler/h200-ceilings.json.gz"},
      {"report", "bench.json", "--out", "report"}};
  for (const WordList& more :
       std::vector<WordList>{{"--pass", "fwd+bwd", "--detail"},
                             {"--advise"},
                             {"--tune-bytes"},
                             {"--kernel", "cpu:flash2", "--curve"},
                             {"--program", kSource + "/examples/programs/flash2.tiles"}}) {
    all.push_back({"simulate"});
    all.back().insert(all.back().end(), small.begin(), small.end());
    all.back().insert(all.back().end(), more.begin(), more.end());
  }
  all.push_back({"compare", "cpu:flash1", "cpu:flash2", "--seqlen", "256", "--pass", "fwd+bwd"});
  for (const char* what : {"counters", "kernels", "log-levels", "machines", "masks", "metrics", "models",
                           "problems", "schedules", "schemas", "studies", "sweeps"})
    all.push_back({"list", what});
  for (const char* what : {"demo",    "verify",  "simulate",   "compare", "study",  "run",     "bench",
                           "profile", "emulate", "ceilings",   "report",  "record", "explain", "diff",
                           "list",    "help",    "completion", "problem", "kernel", "output"})
    all.push_back({"help", what});
  return all;
}

/// Refused, whether there is a GPU or not.
std::vector<WordList> refused_commands() {
  return {{"bench", "--kernel", "cpu:flash2", "--tune"},
          {"bench", "--kernel", "gpu:flash3", "--seqlen", "64", "--head-dim", "72", "--dtype", "fp32"},
          {"explain", kSource + "/reports/foreign/mha.json.gz"},
          {"simulate", "--preset", "nonesuch"},
          {"simulate", "--seqlen", "256", "--kernel", "cpu:nonesuch"},
          {"simulate", "--seqlen", "256", "--bogus", "3"}};
}

}  // namespace

TEST_CASE("tables and sentences of every command fit 60 columns, in pipes too where COLUMNS says so") {
  const NarrowTerminal narrow;
  const TemporaryFolder folder;
  RunEntry base = run_of("gpu:flash2-mma"), now = base;
  now.passes[0].simulated->dram_read_bytes *= 2;
  now.problem.seqlen_k = base.problem.seqlen_k = 512;
  write_file_atomically("--json", folder.path() / "base.json",
                        to_json_text(record_of({base, run_of("gpu:flash3 with a long name")})));
  write_file_atomically("--json", folder.path() / "now.json",
                        to_json_text(record_of({now, run_of("gpu:flash1 with a long name")})));
  for (const WordList& command : printing_commands()) {
    CAPTURE(command);
    const ProgramResult result = run_program(command, folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(check_narrow(result.out) > 0);
    check_narrow(result.err);
  }
  for (const WordList& command : refused_commands()) {
    CAPTURE(command);
    const ProgramResult result = run_program(command, folder.path());
    CHECK(result.exit_code == 2);
    CHECK(check_narrow(result.err) > 1);
  }
}

TEST_CASE("a wide line is folded between words, under its last column, commands and words stay whole") {
  CHECK(cli::fitted("ok   a  one two three four\n", 16) == "ok   a  one two\n        three\n        four\n");
  CHECK(cli::fitted("  one two three four", 10) == "  one two\n    three\n    four");
  CHECK(cli::fitted("    a-word-that-is-wide one to\n", 12) == "    a-word-that-is-wide\n      one to\n");
  CHECK(cli::fitted("  tilescope list kernels\n", 12) == "  tilescope list kernels\n");
  CHECK(cli::fitted("tilescope list  what there is", 18) == "tilescope list\n  what there is");
  CHECK(cli::fitted("short\n\n  as it was\n", 60) == "short\n\n  as it was\n");
}

TEST_CASE("what programs read is printed as it is on a narrow terminal") {
  const WordList schema = {"list", "schemas", "run"};
  const std::string wide = run_program(schema).out;
  const NarrowTerminal narrow;
  CHECK(run_program(schema).out == wide);
}

}  // namespace tilescope::testing
