// SPDX-License-Identifier: Apache-2.0
// --log-level and --log-file, as a user gives them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <regex>
#include <sstream>

#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

const std::vector<std::string> kRun = {"verify", "--heads", "1", "--seqlen", "40", "--kernel", "cpu:flash2"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kRun.begin(), kRun.end());
  return more;
}

/// Every line bears time and level.
void check_form(const std::string& text) {
  static const std::regex form(
      "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z (error  |warning|info   |debug  |trace  ) .+");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(std::regex_match(line, form));
  }
}

}  // namespace

TEST_CASE("nothing is logged unless it is asked for") {
  CHECK(run_program(kRun).err == "");
  CHECK(run_program(with({"--log-level", "off"})).err == "");
}

TEST_CASE("each level tells more, on standard error, and the output stays what it is") {
  const ProgramResult info = run_program(with({"--log-level", "info"}));
  check_form(info.err);
  CHECK(contains(info.err, "begins: "));
  CHECK(contains(info.err, "verify 1/1"));
  CHECK(contains(info.err, "ends with exit code 0"));
  CHECK_FALSE(contains(info.err, "debug"));
  const ProgramResult debug = run_program(with({"--log-level", "debug"}));
  CHECK(contains(debug.err, "cpu:flash2 on B1 H1 N40 D64 fp32: forward 64x128"));
  CHECK(contains(debug.err, "the kernel's own"));
  CHECK_FALSE(contains(debug.err, "launch on the CPU"));
  const ProgramResult trace = run_program(with({"--log-level", "trace"}));
  check_form(trace.err);
  CHECK(contains(trace.err, "launch on the CPU: forward of B1 H1 N40 D64 fp32, tile 64x128, 1 CTAs"));
  CHECK(trace.out.substr(0, 12) == run_program(kRun).out.substr(0, 12));
}

TEST_CASE("a log file takes what is chosen, errors too, and is added to") {
  const TemporaryFolder folder;
  CHECK(run_program(with({"--log-file", "log.txt"}), folder.path()).err == "");
  const std::string first = read_file(folder.path() / "log.txt");
  check_form(first);
  CHECK(contains(first, "debug"));
  CHECK_FALSE(contains(first, "trace"));
  const ProgramResult refused =
      run_program(with({"--tile", "0x0", "--log-file", "log.txt", "--log-level", "error"}), folder.path());
  CHECK(refused.exit_code == 2);
  const ProgramResult late = run_program(
      with({"--dtype", "fp8e4m3", "--pass", "bwd", "--log-file", "log.txt", "--log-level", "error"}),
      folder.path());
  CHECK(late.exit_code == 2);
  CHECK(late.err.starts_with("tilescope: "));
  const std::string both = read_file(folder.path() / "log.txt");
  CHECK(both.starts_with(first));
  CHECK(contains(both.substr(first.size()), "Z error   kernel = cpu:flash2"));
}

TEST_CASE("the environment chooses what no option does") {
  const TemporaryFolder folder;
  setenv("TILESCOPE_LOG_LEVEL", "info", 1);
  setenv("TILESCOPE_LOG_FILE", "here.txt", 1);
  const ProgramResult by_variable = run_program(kRun, folder.path());
  const ProgramResult by_option = run_program(with({"--log-level", "off"}), folder.path());
  setenv("TILESCOPE_LOG_LEVEL", "loud", 1);
  const ProgramResult refused = run_program(kRun, folder.path());
  unsetenv("TILESCOPE_LOG_LEVEL");
  unsetenv("TILESCOPE_LOG_FILE");
  CHECK(contains(by_variable.err, "begins: "));
  CHECK(contains(read_file(folder.path() / "here.txt"), "begins: "));
  CHECK(by_option.err == "");
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "TILESCOPE_LOG_LEVEL = 'loud'"));
}

TEST_CASE("a level that there is not and a file that cannot be are refused") {
  check_refused({with({"--log-level", "wran"}), {"--log-level = 'wran'", "warning"}});
  check_refused({with({"--log-file", "no/where.txt"}), {"--log-file", "no/where.txt"}});
}

}  // namespace tilescope::testing
