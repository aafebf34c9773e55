// SPDX-License-Identifier: Apache-2.0
// What the program says of itself: the greeting, --help, completion and the man page, which know one tree.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

std::string printed(const std::vector<std::string>& arguments) {
  const ProgramResult result = run_program(arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err == "");
  return result.out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The commands of --help, and those about the program itself.
std::vector<std::string> commands() {
  std::vector<std::string> names;
  bool listed = false;
  for (const std::string& line : lines_of(printed({"--help"}))) {
    if (line == "Commands:" || line == "Also:") listed = true;
    if (line.empty()) listed = false;
    if (listed && line.starts_with("  ") && line[2] != ' ')
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  REQUIRE(names.size() >= 15);
  return names;
}

/// What bash offers behind `line`, with the script that the program prints.
std::string bash_offers(const std::string& script, const std::string& line) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "c.bash") << script;
  const std::string out = (folder.path() / "out").string();
  const std::string command = "bash -c 'source " + (folder.path() / "c.bash").string() + "; COMP_LINE=\"" +
                              line + "\"; COMP_POINT=${#COMP_LINE}; _tilescope; echo \"${COMPREPLY[@]}\"' >" +
                              out;
  REQUIRE(std::system(command.c_str()) == 0);
  std::ostringstream text;
  text << std::ifstream(out).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("nothing typed gets a greeting, -h, help and list work alone") {
  const std::string greeting = printed({});
  CHECK(contains(greeting, "tilescope demo"));
  CHECK(contains(greeting, "--help"));
  CHECK(printed({"-h"}) == printed({"--help"}));
  CHECK(printed({"help"}) == printed({"--help"}));
  CHECK(printed({"help", "simulate"}) == printed({"simulate", "-h"}));
  CHECK(contains(printed({"list"}), "what --preset takes"));
  CHECK(printed({"help", "masks"}) == printed({"list", "masks"}));
  check_refused({{"help", "simulat"}, {"did you mean simulate?"}});
}

TEST_CASE("every command's help says what values are, has two examples, and fits 100 columns") {
  for (const std::string& command : commands()) {
    CAPTURE(command);
    const std::string help = printed({command, "--help"});
    const std::vector<std::string> lines = lines_of(help);
    for (const std::string& line : lines) {
      CAPTURE(line);
      CHECK(line.size() <= 100);
      CHECK_FALSE(std::regex_search(line, std::regex("\\b(TEXT|INT|UINT|FLOAT|NONNEGATIVE|POSITIVE)\\b")));
    }
    if (command == "man") continue;
    const auto examples = std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with("  tilescope ");
    });
    CHECK(examples >= 2);
    for (const std::string& line : lines) {  // nothing is shown that is not taken
      if (!line.starts_with("  tilescope " + command)) continue;
      const std::string own = line.substr(0, line.find(" -- "));
      const std::regex option("--[a-z][a-z0-9-]*");
      for (std::sregex_iterator at(own.begin(), own.end(), option), end; at != end; ++at) {
        CAPTURE(at->str());
        CHECK(contains(help.substr(0, help.find("Examples:")), at->str()));
      }
    }
  }
  const std::string simulate = printed({"simulate", "--help"});
  for (const char* fact : {"default h200", "\nMachine:", "--dtype fp32|fp16|", "help problem explains"}) {
    CAPTURE(fact);
    CHECK(contains(simulate, fact));
  }
}

TEST_CASE("options that many commands have are explained once, and named in each") {
  const std::string problem = printed({"help", "problem"}), man = printed({"man"});
  for (const char* fact : {"default 1k", "default fp", "--dtype fp32|fp16|", "--causal"}) {
    CAPTURE(fact);
    CHECK(contains(problem, fact));
  }
  CHECK(contains(printed({"help", "kernel"}), "--tile MxN"));
  CHECK(contains(printed({"help", "output"}), "--json FILE|-"));
  for (const char* words : {"no query sees a later key", "print no text; the exit code tells"}) {
    CAPTURE(words);
    CHECK_FALSE(contains(printed({"simulate", "--help"}), words));
    CHECK(man.find(words) != std::string::npos);
    CHECK(man.find(words) == man.rfind(words));
  }
  for (const std::string& command : commands()) {
    CAPTURE(command);
    CHECK(lines_of(printed({command, "--help"})).size() <= 85);  // two looks
  }
}

TEST_CASE("bash completes commands, options, choices and names") {
  const std::string script = printed({"completion", "bash"});
  CHECK(contains(bash_offers(script, "tilescope sim"), "simulate"));
  CHECK(contains(bash_offers(script, "tilescope simulate --mach"), "--machine"));
  CHECK(contains(bash_offers(script, "tilescope simulate --backward f"), "fused"));
  CHECK(contains(bash_offers(script, "tilescope simulate --machine a100"), "a100-40gb"));
  CHECK(contains(bash_offers(script, "tilescope simulate --machine a100-80gb,h1"), "a100-80gb,h100-sxm"));
  CHECK(contains(bash_offers(script, "tilescope help si"), "simulate"));
  CHECK(contains(bash_offers(script, "tilescope list ker"), "kernels"));
  CHECK(contains(bash_offers(script, "tilescope run --kernel cpu:fla"), "flash2"));
  CHECK_FALSE(
      contains(bash_offers(script, "tilescope run --kernel cpu:fla"), "cpu:"));  // bash has that already
  CHECK(bash_offers(script, "tilescope report --out re") == "\n");               // a folder: bash itself
}

TEST_CASE("zsh, fish and the man page know every command and option") {
  const std::string zsh = printed({"completion", "zsh"}), fish = printed({"completion", "fish"}),
                    man = std::regex_replace(printed({"man"}), std::regex("\\\\-"), "-");
  // One a line, or by name, several a line.
  const std::regex name("^  (?:-[a-z],)?--([a-z][a-z0-9-]*)|, --([a-z][a-z0-9-]*)");
  CHECK(zsh.starts_with("#compdef tilescope"));
  for (const std::string& command : commands()) {
    CAPTURE(command);
    CHECK(contains(zsh, "'" + command + ":"));
    CHECK(contains(fish, "-a " + command + " "));
    CHECK(contains(man, ".SS " + command));
    for (const std::string& line : lines_of(printed({command, "--help"}))) {
      for (std::sregex_iterator at(line.begin(), line.end(), name), end; at != end; ++at) {
        const std::string option = at->str(1) + at->str(2);
        CAPTURE(option);
        CHECK(contains(zsh, "--" + option + ":"));
        CHECK(contains(fish, "-l " + option + " "));
        CHECK(contains(man, "--" + option));
      }
    }
  }
  for (const auto& [shell, script] : {std::pair("zsh", &zsh), {"fish", &fish}}) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "script").string();
    std::ofstream(path) << *script;
    const std::string has = std::string("command -v ") + shell + " >/dev/null 2>&1";
    if (std::system(has.c_str()) != 0) {
      MESSAGE("skipped: no ", std::string(shell), " to read what completes its words");
    } else {
      CHECK(std::system((std::string(shell) + " -n " + path).c_str()) == 0);
    }
  }
  check_refused({{"completion", "powershell"}, {"powershell", "bash, zsh, fish"}});
}

}  // namespace tilescope::testing
