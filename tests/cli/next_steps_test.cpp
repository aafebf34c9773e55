// SPDX-License-Identifier: Apache-2.0
// The demo ends with commands that this machine can run, and that the program takes.
#include "analysis/cli/commands/next_steps.hpp"

#include <doctest/doctest.h>

#include <regex>

#include "tests/cli/run_program.hpp"

namespace tilescope::testing {

TEST_CASE("three commands to try next, by what the machine has") {
  for (const bool gpu : {false, true}) {
    for (const bool pytorch : {false, true}) {
      const std::vector<cli::NextStep> steps = cli::next_steps(gpu ? "gpu:flash3" : "", pytorch);
      CHECK(steps.size() == 3);
      for (const cli::NextStep& step : steps) {
        CAPTURE(step.command);
        const std::string command = step.command.substr(0, step.command.find(' '));
        const std::string own = step.command.substr(0, step.command.find(" -- "));
        CHECK((command == "profile" || command == "bench") == (gpu && command != "simulate"));
        const std::string told = run_program({command, "--help"}).out;
        const std::string help = told.substr(0, told.find("Examples:"));
        const std::regex option("--[a-z-]+");
        for (std::sregex_iterator at(own.begin(), own.end(), option), end; at != end; ++at) {
          CHECK(std::regex_search(help, std::regex(at->str() + "\\b")));
        }
      }
    }
  }
}

}  // namespace tilescope::testing
