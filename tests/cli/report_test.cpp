// SPDX-License-Identifier: Apache-2.0
// `tilescope report` and `tilescope study`, from outside.
#include <doctest/doctest.h>

#include <fstream>

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
  const ProgramResult result =
      run_program({"report", "run.json", "--holdout", "run.json", "--out", "pages", "--fill", "README.md"},
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

TEST_CASE("study runs by name, and refuses others") {
  check_refused({{"study", "seqlem"}, {"study", "seqlem", "seqlen"}});
  check_refused({{"study", "seqlen", "--machine", "h300"}, {"h300", "h200"}});
  check_refused({{"study", "paper-errors", "--machine", "h200"}, {"machine", "h200", "left out"}});
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"study", "paper-figure2", "--json", "figure2.json"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(read_run_record((folder.path() / "figure2.json").string()).runs.size() == 5);
  CHECK(contains(result.out, "`tilescope report figure2.json` turns them into figures"));
  CHECK(contains(run_program({"study", "paper-figure2"}).out, "nothing of it is kept without --json FILE\n"));
}

TEST_CASE("record compact replaces its records, and writes nowhere else") {
  const TemporaryFolder folder;
  CHECK(run_program({"simulate", "--seqlen", "256", "--json", "a.json"}, folder.path()).exit_code == 0);
  const std::string before = contents(folder.path() / "a.json");
  const ProgramResult elsewhere =
      run_program({"record", "compact", "a.json", "--json", "b.json"}, folder.path());
  CHECK(elsewhere.exit_code == 2);
  CHECK(contains(elsewhere.err, "--json = b.json: must be left out"));
  CHECK(contents(folder.path() / "a.json") == before);
  CHECK(!std::filesystem::exists(folder.path() / "b.json"));
  CHECK(run_program({"record", "compact", "a.json"}, folder.path()).exit_code == 0);
  CHECK(contents(folder.path() / "a.json") != before);
}

}  // namespace tilescope::testing
