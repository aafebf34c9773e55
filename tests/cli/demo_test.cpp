// SPDX-License-Identifier: Apache-2.0
// `tilescope demo`, from outside: the commands it names leave their records, and the report is there.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "tests/cli/run_program.hpp"

namespace tilescope::testing {

TEST_CASE("demo passes, and leaves records that can be read and a report") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program({"demo", "--out", "first look"}, folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  CHECK(result.out.find("first look/report.html") != std::string::npos);
  const std::filesystem::path out = folder.path() / "first look";
  int records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out / "data")) {
    CHECK_FALSE(read_run_record(entry.path().string()).runs.empty());
    ++records;
  }
  CHECK(records >= 8);
  std::ostringstream html;
  html << std::ifstream(out / "report.html").rdbuf();
  CHECK(html.str().find("<svg") != std::string::npos);
  CHECK(html.str().find("</html>") != std::string::npos);
  CHECK(html.str().find("<figure class=\"picture\"") < html.str().find("<h2 class=\"group\""));
  // Two groups of numbers under one heading say whose they are.
  CHECK(html.str().find("<h3>Every kernel, problem by problem (a100-40gb model, h200 model") !=
        std::string::npos);
  // Table and page round alike.
  CHECK(result.out.find("26.6x") != std::string::npos);
  CHECK(html.str().find("<td>26.6x<td>") != std::string::npos);

  // A table that it shows is what the command above it prints.
  const std::size_t command = result.out.find("$ ./tilescope simulate --preset gpt2-medium");
  REQUIRE(command != std::string::npos);
  std::istringstream shown(result.out.substr(command));
  std::string line, word;
  std::getline(shown, line);
  std::istringstream words(line.substr(line.find("simulate")));
  std::vector<std::string> arguments;
  while (words >> word) arguments.push_back(word);
  const ProgramResult again = run_program(arguments);
  CHECK(again.exit_code == 0);
  int rows = 0;
  while (std::getline(shown, line) && !line.starts_with("$")) {
    CAPTURE(line);
    CHECK(again.out.find(line) != std::string::npos);
    rows += line.find("flash") != std::string::npos ? 1 : 0;
  }
  CHECK(rows == 4);
}

TEST_CASE("demo's tables are as asked") {
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"demo", "--out", "first look", "--format", "markdown"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("| flash2 | 128x128 | 4.497 GB | 26.6x | ") != std::string::npos);
}

}  // namespace tilescope::testing
