// SPDX-License-Identifier: Apache-2.0
// The frame of the command line, tested from outside: commands, common options, output, exit codes.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.hpp"

using namespace tilescope::testing;

TEST_CASE("a mistyped command or option is refused with the nearest name") {
  const BadCommand cases[] = {
      {{"lst"}, {"command", "lst", "did you mean list?"}},
      {{"--versoin"}, {"--versoin", "did you mean --version?"}},
      {{"list", "problms"}, {"list", "problms", "did you mean problems?"}},
      {{"list", "problems", "--jsn", "x"}, {"list option", "--jsn", "did you mean --json?"}},
      {{"list", "problems", "--jsn=x"}, {"list option", "--jsn", "did you mean --json?"}},
      {{"list", "problems", "more"}, {"list argument", "more"}},
      {{"list", "problems", "--json"}, {"--json", "required"}},
      {{"list", "problems", "--json", "a", "--json", "b"}, {"--json is given 2 times: it may be given once"}},
      {{"list", "two\nlines"}, {"list", "two lines", "problems"}},
  };
  for (const BadCommand& bad : cases) check_refused(bad);
}

TEST_CASE("a record that cannot be written is refused before the work") {
  const BadCommand cases[] = {
      {{"list", "problems", "--json", "/nonexistent/x.json"},
       {"--json", "/nonexistent/x.json", "can be written"}},
      {{"list", "problems", "--json", "/"}, {"--json", "= /", "directory"}},
      {{"list", "problems", "--json", ""}, {"--json", "''", "can be written"}},
  };
  for (const BadCommand& bad : cases) check_refused(bad);
}

TEST_CASE("--help and --version") {
  const ProgramResult help = run_program({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out.find("list") != std::string::npos);
  CHECK(help.err == "");
  CHECK(run_program({"list", "--help"}).out.find("--json") != std::string::npos);
  CHECK(run_program({"--version"}).out.starts_with("tilescope 0."));
}

TEST_CASE("--json FILE, --json - and --quiet") {
  const TemporaryFolder folder;
  const ProgramResult text = run_program({"list", "problems"});
  const ProgramResult both = run_program({"list", "problems", "--json", "x.json"}, folder.path());
  CHECK(both.exit_code == 0);
  CHECK(both.out == text.out);
  const ProgramResult record = run_program({"list", "problems", "--json", "-"});
  CHECK(record.exit_code == 0);
  CHECK(nlohmann::json::parse(record.out).at("problems").size() >= 5);
  std::ifstream file(folder.path() / "x.json");
  CHECK(nlohmann::json::parse(file) == nlohmann::json::parse(record.out));
  const ProgramResult quiet = run_program({"list", "problems", "--quiet", "--json", "y.json"}, folder.path());
  CHECK(quiet.exit_code == 0);
  CHECK(quiet.out == "");
  CHECK(std::filesystem::exists(folder.path() / "y.json"));
}

TEST_CASE("a reader that leaves is no error, a full disk is") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"list", "problems"}, {"list", "problems", "--json", "-"}}) {
    const ProgramResult result = run_program_without_reader(arguments);
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
  }
  const ProgramResult full = run_program({"list", "problems"}, std::filesystem::current_path(), "/dev/full");
  CHECK(full.exit_code == 3);
  CHECK(full.err.find("standard output") != std::string::npos);
}
