// SPDX-License-Identifier: Apache-2.0
// `tilescope demo`, from outside: the commands it names leave their records, and the report is there.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

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
}

}  // namespace tilescope::testing
