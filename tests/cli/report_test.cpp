// SPDX-License-Identifier: Apache-2.0
// `tilescope report` and `tilescope study`, from outside.
#include <doctest/doctest.h>

#include <fstream>

#include "analysis/records/files/text_file.hpp"
#include "tests/cli/diff_records.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("report writes a folder, fills marked texts, and says what it wrote") {
  const TemporaryFolder folder;
  write_run_record(record_of({run_of("cpu:flash2")}), (folder.path() / "run.json").string());
  std::ofstream(folder.path() / "README.md") << "mine\n<!-- generated: summary -->\n<!-- /generated -->\n";
  const ProgramResult result = run_program({"report", "run.json", "--holdout", "run.json", "--claims",
                                            "run.json", "--out", "pages", "--fill", "README.md"},
                                           folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("pages/report.html\n") != std::string::npos);
  CHECK(contents(folder.path() / "pages/report.md").starts_with("# "));
  const std::string readme = contents(folder.path() / "README.md");
  CHECK(readme.starts_with("mine\n"));
  CHECK(readme.find("| forward | flash2 |") != std::string::npos);
}

TEST_CASE("report refuses what it cannot read or write, and writes nothing") {
  check_refused({{"report"}, {"RECORD", "at least one"}});
  check_refused({{"report", "absent.json"}, {"absent.json"}});
  check_refused({{"report", "--holdout", "absent.json"}, {"absent.json"}});
  check_refused({{"report", "/dev/null", "--claims", "absent.json"}, {"/dev/null"}});
  check_refused({{"report", "/dev/null"}, {"/dev/null"}});
  const TemporaryFolder folder;
  const std::string record = (folder.path() / "run.json").string();
  write_run_record(record_of({run_of("cpu:flash2")}), record);
  check_refused({{"report", record, "--out", "/proc/nowhere"}, {"--out", "/proc/nowhere"}});
  check_refused({{"report", record, "--fill", "absent.md"}, {"absent.md"}});
  const std::string damaged = (folder.path() / "damaged.json").string();
  std::ofstream(damaged) << contents(record).substr(0, 200);
  check_refused({{"report", damaged}, {damaged}});
}

TEST_CASE("report writes one section alone, and what changed against a baseline") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  RunEntry less = run_of("cpu:flash2");
  for (PassRecord& pass : less.passes) pass.closed_form->sm_l2_read_bytes -= 1;
  write_run_record(record_of({run_of("cpu:flash2")}), path("old.json"));
  write_run_record(record_of({less}), path("new.json"));
  const auto report = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"report", "new.json", "--out", "pages"});
    return run_program(words, folder.path());
  };
  CHECK(report({"--baseline", "old.json", "--section", "changes"}).exit_code == 0);
  const std::string page = contents(folder.path() / "pages/report.html");
  CHECK(page.find("<td class=\"good\">-") != std::string::npos);
  CHECK(page.find("id=\"summary\"") == std::string::npos);
  const ProgramResult refused = report({"--section", "changse"});
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "--section = changse: must be one of those that the records give: summary"));
}

TEST_CASE("figures become PDF by a program, whose package is named where it is missing") {
  const TemporaryFolder folder;
  write_run_record(record_of({run_of("cpu:flash2")}), (folder.path() / "run.json").string());
  const std::vector<std::string> words = {"report", "run.json", "--out", "pages", "--pdf"};
  const std::string path = getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);  // where there is none
  const ProgramResult without = run_program(words, folder.path());
  setenv("PATH", path.c_str(), 1);
  CHECK(without.exit_code == 3);
  CHECK(contains(without.err, "no PDF is written, all else is: --pdf needs rsvg-convert"));
  CHECK(contains(without.err, "librsvg2-bin"));
  CHECK(contents(folder.path() / "pages/figures/bytes-flow.svg").starts_with("<svg"));
  CHECK(contains(contents(folder.path() / "pages/report.html"), "</html>"));
  const ProgramResult result = run_program(words, folder.path());
  if (result.exit_code != 3) {  // else this machine lacks it
    CHECK(result.exit_code == 0);
    CHECK(contents(folder.path() / "pages/figures/bytes-flow.pdf").starts_with("%PDF"));
  }
}

TEST_CASE("study runs by name, and refuses others") {
  check_refused({{"study", "seqlem"}, {"study", "seqlem", "seqlen"}});
  check_refused({{"study", "seqlen", "--machine", "h300"}, {"h300", "h200"}});
  check_refused({{"study", "paper-errors", "--machine", "h200"}, {"machine", "h200", "left out"}});
  check_refused({{"study", "paper-errors", "--kernel", "cpu:flash9"}, {"cpu:flash9", "cpu:flash2"}});
  check_refused({{"study", "seqlen", "--kernel", "cpu:flash2"}, {"--kernel", "cpu:flash2", "left out"}});
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"study", "paper-figure2", "--json", "figure2.json"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(read_run_record((folder.path() / "figure2.json").string()).runs.size() == 5);
  CHECK(contains(result.out, "`tilescope report figure2.json` turns them into figures"));
  CHECK(contains(run_program({"study", "paper-figure2"}).out, "nothing of it is kept without --json FILE\n"));
}

TEST_CASE("a record is written compressed by its name, and read as well as the plain one") {
  const TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& words) { return run_program(words, folder.path()); };
  const auto at = [&](const char* name) { return folder.path() / name; };
  CHECK(run({"simulate", "--seqlen", "256", "--json", "a.json"}).exit_code == 0);
  CHECK(run({"simulate", "--seqlen", "256", "--json", "a.json.gz"}).exit_code == 0);
  const std::string packed = contents(at("a.json.gz"));
  CHECK(packed.substr(0, 2) == "\x1f\x8b");
  CHECK(packed.size() < contents(at("a.json")).size() / 2);
  CHECK(read_run_record(at("a.json.gz")).runs == read_run_record(at("a.json")).runs);
  CHECK(run({"diff", "a.json.gz", "a.json"}).exit_code == 0);
  CHECK(run({"report", "a.json.gz", "--out", "pages"}).exit_code == 0);
  for (const std::string& damaged :
       {packed.substr(0, packed.size() - 9), packed + "x", std::string("\x1f\x8b"), packed + packed}) {
    std::ofstream(at("damaged.json.gz")) << damaged;
    const ProgramResult refused = run({"diff", "damaged.json.gz", "a.json"});
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, "file = damaged.json.gz: must be whole"));
  }
}

TEST_CASE("what is compressed may not be of any size") {
  const TemporaryFolder folder;
  const std::string bomb = folder.path() / "bomb.json.gz";
  write_file_atomically("bomb", bomb, std::string((std::size_t{1} << 28) + 1, ' '));
  CHECK(std::filesystem::file_size(bomb) < 1'000'000);
  CHECK_THROWS_WITH_AS(read_text_file(bomb), doctest::Contains("is larger than 268435456 bytes"), BadInput);
}

}  // namespace tilescope::testing
