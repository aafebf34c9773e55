// SPDX-License-Identifier: Apache-2.0
// Tables for other tools: the same numbers as text, Markdown, CSV and LaTeX, of every command that prints
// some.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/profile/profile.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/records/files/text_file.hpp"
#include "tests/cli/diff_records.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

using cli::Cell;
using cli::Table;
using cli::TableFormat;

Table table_of_two() {
  return {.rows = {{"kernel", "SM<->L2", "x must", "note"},
                   {"a_b", cli::in_bytes(std::int64_t{1234567}), cli::as_ratio(3, 2), "-"},
                   {"c|d, e", cli::in_bytes(std::int64_t{5}), cli::as_ratio(1, 0), "-"}},
          .title = "forward must move 5 B",
          .keys = {{"direction", "forward"}, {"must move", cli::in_bytes(std::int64_t{5})}}};
}

std::string told(const Table& table, TableFormat format) {
  std::string heading;
  return to_text(table, format, heading);
}

std::vector<std::string> text_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t commas(const std::string& line) {
  bool quoted = false;
  std::size_t count = 0;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("one table in each format: rounded for people, exact with units for programs") {
  CHECK(told(table_of_two(), TableFormat::text) ==
        "forward must move 5 B\nkernel   SM<->L2  x must\na_b     1.235 MB   1.50x\nc|d, e       5 B       "
        "-\n");
  CHECK(told(table_of_two(), TableFormat::markdown) ==
        "\n**forward must move 5 B**\n\n| kernel | SM<->L2 | x must |\n|---|---:|---:|\n| a_b | 1.235 MB | "
        "1.50x |\n"
        "| c\\|d, e | 5 B | - |\n\n");
  CHECK(told(table_of_two(), TableFormat::csv) ==
        "direction,must move [B],kernel,SM<->L2 [B],SM<->L2 x must,note\nforward,5,a_b,1234567,1.5,\n"
        "forward,5,\"c|d, e\",5,,\n");
  CHECK(told(table_of_two(), TableFormat::latex) ==
        "% forward must move 5 B\n\\begin{tabular}{lrr}\n\\hline\nkernel & SM$\\leftrightarrow$L2 & x must "
        "\\\\\n"
        "\\hline\na\\_b & 1.235 MB & 1.50x \\\\\nc|d, e & 5 B & - \\\\\n\\hline\n\\end{tabular}\n");
}

TEST_CASE("tables of the same columns are one in CSV") {
  std::string heading;
  const std::string first = to_text(table_of_two(), TableFormat::csv, heading);
  const std::string second = to_text(table_of_two(), TableFormat::csv, heading);
  CHECK(first.ends_with(second));
  CHECK(second.starts_with("forward,5,a_b"));
}

TEST_CASE("a table that is turned for people has a row for each thing in CSV") {
  Table table = table_of_two();
  table.layout = Table::Layout::turned;
  CHECK(told(table, TableFormat::text) ==
        "forward must move 5 B\nkernel        a_b  c|d, e\nSM<->L2  1.235 MB     5 B\nx must      1.50x      "
        " -\n"
        "note            -       -\n");
  CHECK(told(table, TableFormat::csv) == told(table_of_two(), TableFormat::csv));
}

TEST_CASE("each row of a sweep says which problem it is, in columns of what differs") {
  const auto in = [](const char* format) {
    return run_program({"simulate", "--kernel", "cpu:flash2", "--heads", "2", "--sweep", "seqlen=128,256",
                        "--sweep", "causal=no,yes", "--format", format})
        .out;
  };
  CHECK(contains(in("text"), "B1 H2 N128 D64 fp32 causal"));
  CHECK(contains(in("csv"), ",problem,batch,heads,heads_kv,seqlen_q,seqlen_k,head_dim,dtype,causal,tile,"));
  CHECK(contains(in("csv"), ",B1 H2 N256 D64 fp32 causal,1,2,2,256,256,64,fp32,yes,64x128,"));
  CHECK(contains(in("markdown"), "**flash2, forward on h200: B1 H2 D64 fp32**"));
  CHECK(contains(in("markdown"), "| N | causal | tile |"));
  CHECK(contains(in("markdown"), "| 256 | yes | 64x128 |"));
  CHECK(contains(in("latex"), "% flash2, forward on h200: B1 H2 D64 fp32\n"));
  CHECK(contains(in("latex"), "\n256 & yes & 64x128 & "));
  const auto bench_in = [](const char* format) {
    return run_program({"bench", "--kernel", "cpu:flash2", "--heads", "2", "--sweep", "seqlen=64,128",
                        "--seconds", "0.001", "--format", format})
        .out;
  };
  CHECK(contains(bench_in("latex"), "problem & N & "));  // beside a matrix product, whose row has none
  CHECK(contains(bench_in("latex"), "B1 H2 N128 D64 fp32 & 128 & "));
  const std::string bench = bench_in("csv");
  CHECK(contains(bench, "cpu:flash2,B1 H2 N128 D64 fp32,1,2,2,128,128,64,fp32,no,forward,"));
  CHECK(
      contains(run_program({"simulate", "--kernel", "cpu:flash2", "--seqlen", "128", "--format", "csv"}).out,
               "\nB1 H8 N128 D64 fp32,1,8,8,128,128,64,fp32,no,forward,"));
}

TEST_CASE("a column that says more than its parts stays") {
  AttentionProblem problem;
  Table table{.rows = {{"problem", "bytes"}, {cli::as_problem(problem), "1"}}};
  problem.score_mods.softcap = 30;
  table.rows.push_back({cli::as_problem(problem), "2"});
  CHECK(contains(told(table, TableFormat::markdown), "| problem | bytes |"));
  problem.seqlen_q = problem.seqlen_k = 2;
  table.rows[2][0] = cli::as_problem(problem);
  CHECK(contains(told(table, TableFormat::markdown), "**B1 H1 D64 fp32**\n\n| N | bytes |"));
}

TEST_CASE("rows of a measured sweep have their kernel, tile and lengths in columns") {
  std::vector<RunEntry> runs(2);
  for (const std::int64_t i : {0, 1}) {
    RunEntry& run = runs[static_cast<std::size_t>(i)];
    run.kernel = "gpu:flash3";
    run.problem = {.seqlen_q = 128 << i, .seqlen_k = 128 << i};
    PassRecord& pass = run.passes.emplace_back();
    pass.name = "forward";
    pass.flops = 4'000'000;
    pass.tile = {128, 64};
    pass.time.emplace().median_s = 1e-6;
  }
  const Table table = cli::sweep_table(runs);
  CHECK(contains(told(table, TableFormat::text),
                 "gpu:flash3 forward 128x64 B1 H1 N256 D64 fp32: 16.78 TFLOP/s"));
  CHECK(contains(told(table, TableFormat::csv), ",gpu:flash3,forward,128x64,1,1,1,256,256,64,fp32,no,"));
  CHECK(contains(told(table, TableFormat::markdown),
                 "**gpu:flash3 forward 128x64 B1 H1 D64 fp32**\n\n| N | rate | time |"));
}

TEST_CASE("every command that prints tables has them in every format, and its sentences elsewhere") {
  const TemporaryFolder folder;
  for (const auto& [name, tile] : {std::pair("base.json", "128x64"), {"new.json", "64x64"}}) {
    REQUIRE(
        run_program({"simulate", "--kernel", "cpu:flash2", "--seqlen", "256", "--tile", tile, "--json", name},
                    folder.path())
            .exit_code == 0);
  }
  const std::vector<std::vector<std::string>> commands = {
      {"simulate", "--seqlen", "256", "--pass", "fwd+bwd"},
      {"simulate", "--seqlen", "256", "--detail"},
      {"simulate", "--sweep", "seqlen=128,256", "--kernel", "cpu:flash2"},
      {"simulate", "--seqlen", "128", "--heads", "1", "--kernel", "cpu:flash2", "--tune-bytes",
       "--closed-form"},
      {"simulate", "--gpus", "2", "--schedule", "ring,zigzag", "--seqlen", "1k", "--dtype", "fp16"},
      {"compare", "cpu:flash1", "cpu:flash2", "--seqlen", "256"},
      {"diff", "base.json", "new.json", "--allow-gone"},
      {"bench", "--seqlen", "64", "--kernel", "cpu:flash2", "--seconds", "0.001"},
      {"ceilings", "--from", TILESCOPE_SOURCE_DIR "/reports/profiler/h200-ceilings.json.gz"},
      {"explain", TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json.gz", "--batch", "2", "--heads", "16",
       "--seqlen", "4096", "--head-dim", "128", "--dtype", "fp16", "--kernel-filter", "flash"},
      {"emulate", TILESCOPE_SOURCE_DIR "/examples/emulate/transpose.ptx", "--launch",
       TILESCOPE_SOURCE_DIR "/examples/emulate/transpose.json"},
      {"study", "paper-figure2"},
      {"study", "diagonal"},
      {"list", "machines"},
      {"list", "machines", "h200"},
      {"list", "kernels"}};
  for (const std::vector<std::string>& command : commands) {
    std::string line;
    for (const std::string& word : command) line += word + " ";
    CAPTURE(line);
    const auto in = [&](const char* format) {
      std::vector<std::string> words = command;
      words.insert(words.end(), {"--format", format});
      return run_program(words, folder.path());
    };
    const ProgramResult csv = in("csv"), latex = in("latex"), markdown = in("markdown");
    CAPTURE(csv.err);
    CHECK((csv.exit_code == 0 || command[0] == "diff"));
    std::size_t columns = 0;
    for (const std::string& row : text_lines(csv.out)) {
      CAPTURE(row);
      if (row.empty()) columns = 0;  // another table
      if (row.empty()) continue;
      if (columns == 0) columns = commas(row);
      CHECK(columns > 0);
      CHECK(commas(row) == columns);
    }
    CHECK(text_lines(csv.out).size() >= 2);
    CHECK(latex.out.starts_with(latex.out.starts_with("%") ? "% " : "\\begin{tabular}{"));
    CHECK(contains(latex.out, "\\end{tabular}"));
    CHECK(contains(markdown.out, "---|"));
  }
  const ProgramResult sentences = run_program({"simulate", "--seqlen", "256", "--format", "csv"});
  CHECK(contains(sentences.err, "on NVIDIA H200"));
  CHECK(run_program({"simulate", "--seqlen", "256", "--format", "csv", "--quiet"}).err == "");
  CHECK(text_lines(run_program({"simulate", "--seqlen", "256", "--pass", "fwd+bwd", "--format", "csv"}).out)
            .size() == 3);
  const ProgramResult lines =
      run_program({"emulate", TILESCOPE_SOURCE_DIR "/examples/emulate/transpose.ptx", "--launch",
                   TILESCOPE_SOURCE_DIR "/examples/emulate/transpose.json", "--format", "csv"});
  CHECK(contains(lines.out, "line,read [B],written [B],sectors/request,excess [B],"));
  CHECK(contains(lines.out, "transpose.cu:10,65536,524288,18,458752,,"));
  CHECK(contains(lines.err, "uncoalesced at transpose.cu:10"));
  check_refused(
      {{"simulate", "--seqlen", "256", "--format", "html"}, {"--format", "text, markdown, csv, latex"}});
}

TEST_CASE("the published schemas are those of this program, and the citation has its version") {
  const std::string list = run_program({"list", "schemas", "--format", "csv"}).out;
  std::size_t published = 0;
  for (const auto& file : std::filesystem::directory_iterator(TILESCOPE_SOURCE_DIR "/reports/schemas")) {
    const std::string path = file.path().filename(), name = path.substr(0, path.find('.'));
    CAPTURE(name);
    ++published;
    CHECK(contains(list, std::string("\n") + name + ","));
    const ProgramResult schema = run_program({"list", "schemas", name});
    CHECK(schema.out ==
          read_file(std::string(TILESCOPE_SOURCE_DIR "/reports/schemas/") + name + ".schema.json"));
  }
  CHECK(text_lines(list).size() == published + 1);
  const std::string printed = run_program({"list", "schemas", "run"}).out;
  CHECK(run_program({"list", "schemas", "run", "--json", "-"}).out == printed);
  const TemporaryFolder folder;
  const ProgramResult kept =
      run_program({"list", "schemas", "run", "--quiet", "--json", "run.json"}, folder.path());
  CHECK(kept.out == "");
  CHECK(read_file((folder.path() / "run.json").string()) == printed);
  CHECK(run_program({"list", "machines", "--template", "--json", "-"}).out ==
        run_program({"list", "machines", "--template"}).out);
  check_refused({{"list", "schemas", "rnu"}, {"schema", "did you mean run"}});
  const std::string version = run_program({"--version"}).out;  // "tilescope 0.1.0\n"
  CHECK(contains(read_file(TILESCOPE_SOURCE_DIR "/CITATION.cff"), "\nversion: " + version.substr(10)));
}

TEST_CASE("parts of a wide table repeat the columns that tell its rows apart") {
  setenv("COLUMNS", "60", 1);
  const std::string text =
      cli::align_columns({{"kernel", "pass", "what a wide column holds", "what another column holds"},
                          {"flash2", "forward", "1", "2"},
                          {"flash2", "backward", "3", "4"}});
  unsetenv("COLUMNS");
  CHECK(contains(text, "flash2  forward   1\n"));
  CHECK(contains(text, "flash2  backward  4\n"));
}

TEST_CASE("passes and curves on several machines name theirs") {
  const std::vector<std::string> words = {"simulate",  "--seqlen",       "256",      "--kernel", "cpu:flash2",
                                          "--machine", "h200,a100-80gb", "--detail", "--curve",  "--format"};
  const auto in = [&words](const char* format) {
    std::vector<std::string> all = words;
    all.emplace_back(format);
    return run_program(all).out;
  };
  const std::string csv = in("csv"), text = in("text");
  for (const std::string machine : {"h200", "a100-80gb"}) {
    CHECK(contains(
        csv, "cpu:flash2,forward," + machine + ",B1 H8 N256 D64 fp32,1,8,8,256,256,64,fp32,no,forward,"));
    CHECK(contains(text, "cpu:flash2, forward on " + machine + "\n"));
  }
  CHECK(contains(csv, "kernel,direction,machine,problem,batch,"));
  CHECK(contains(csv, ",causal,LRU from"));
}

}  // namespace tilescope::testing
