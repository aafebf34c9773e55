// SPDX-License-Identifier: Apache-2.0
// Every command where nothing can be printed, and every option at the ends of the integers: each ends in
// time, with an exit code that says why. Commands and options are those that the program has.
#include <doctest/doctest.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <map>

#include "analysis/cli/command.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

using Words = std::vector<std::string>;
constexpr unsigned kSeconds = 120;  // on a machine that is busy

/// What makes a command quick; others run as they are.
const std::map<std::string, Words>& usual_words() {
  static const std::map<std::string, Words> words = {
      {"verify", {"--kernel", "cpu:flash2", "--heads", "1", "--seqlen", "64"}},
      {"simulate", {"--kernel", "cpu:flash2", "--heads", "1", "--seqlen", "64"}},
      {"compare", {"cpu:flash1", "cpu:flash2", "--heads", "1", "--seqlen", "64"}},
      {"study", {"block-size", "--dry-run"}},
      {"run", {"--kernel", "cpu:flash2", "--heads", "1", "--seqlen", "64", "--out", "out"}},
      {"bench",
       {"--kernel", "cpu:flash2", "--heads", "1", "--seqlen", "64", "--repetitions", "1", "--seconds",
        "0.001", "--threads", "1"}},
      {"profile", {"--kernel", "gpu:flash2-mma", "--heads", "1", "--seqlen", "64"}},
      {"ceilings", {"--from", "none.json"}},
      {"report", {"none.json"}},
      {"record", {"merge", "none.json"}},
      {"explain", {"--gpus", "2", "--link-bytes", "1MB", "--heads", "2", "--seqlen", "64"}},
      {"diff", {"none.json", "none.json"}},
      {"completion", {"bash"}}};
  return words;
}

/// The command as it is quick, with the option in place of what is usual.
Words with_option(const std::string& command, const std::string& option, const std::string& value) {
  Words words = {command};
  const auto usual = usual_words().find(command);
  if (usual != usual_words().end()) words.insert(words.end(), usual->second.begin(), usual->second.end());
  const auto same = std::find(words.begin(), words.end(), option);
  if (same != words.end()) words.erase(same, same + 2);
  if (!option.empty()) words.insert(words.end(), {option, value});
  return words;
}

/// Calls take(command, "--option") for each option that takes a value; with "" for the command itself.
template <typename Take>
void for_each_option(Take&& take) {
  CLI::App app;
  cli::CommandContext context;
  cli::add_commands(app, context, [](const std::vector<std::string>&) { return 0; });
  for (const CLI::App* command : app.get_subcommands({})) {
    take(command->get_name(), "");
    for (const CLI::Option* option : command->get_options()) {
      const bool same_in_all = option->get_group() == "Output" && command->get_name() != "list";
      if (option->get_type_size() != 0 && !option->get_lnames().empty() && !same_in_all)
        take(command->get_name(), "--" + option->get_lnames().front());
    }
  }
}

/// @param taken  a file that stands in the folder
void check_ends_well(const Words& words, const std::string& stdout_path = "", const std::string& taken = "") {
  std::string line = "tilescope";
  for (const std::string& word : words) line += " " + word;
  CAPTURE(line);
  const TemporaryFolder folder;
  if (!taken.empty()) std::ofstream(folder.path() / taken) << "";
  const ProgramResult result = run_program(words, folder.path(), stdout_path, kSeconds);
  CAPTURE(result.err);
  CHECK(result.exit_code >= 0);
  CHECK(result.exit_code <= 3);
}

void check_every_option(const std::string& value) {
  int options = 0;
  for_each_option([&](const std::string& command, const std::string& option) {
    if (option.empty()) return;
    ++options;
    // Every value names a folder for demo, which it fills in ten seconds, unless it is none.
    check_ends_well(with_option(command, option, value), "", command == "demo" ? value : "");
  });
  CHECK(options > 200);
}

}  // namespace

TEST_CASE("every option that takes a value is done with or refused at 0") { check_every_option("0"); }

TEST_CASE("every option that takes a value is done with or refused at -1") { check_every_option("-1"); }

TEST_CASE("every option that takes a value is done with or refused at 2^63 - 1") {
  check_every_option("9223372036854775807");
}

TEST_CASE("every command says so where its output cannot be written") {
  for_each_option([](const std::string& command, const std::string& option) {
    if (!option.empty()) return;
    const Words words = with_option(command, "", "");
    Words help = {command, "--help"};
    CAPTURE(command);
    CHECK(run_program(help, std::filesystem::current_path(), "/dev/full", kSeconds).exit_code == 3);
    if (command == "demo") return check_ends_well({"demo", "--out", "out"}, "/dev/full");
    const TemporaryFolder folder;
    const ProgramResult usual = run_program(words, folder.path(), "", kSeconds);
    CAPTURE(usual.err);
    CHECK(usual.exit_code >= 0);
    CHECK(usual.exit_code <= 3);
    const TemporaryFolder other;
    const ProgramResult full = run_program(words, other.path(), "/dev/full", kSeconds);
    CHECK(full.exit_code == (usual.out.empty() ? usual.exit_code : 3));
  });
  for (const Words& more : {Words{"-v"}, Words{"--locate"}}) {
    Words words = with_option("verify", "", "");
    words.insert(words.end(), more.begin(), more.end());
    CHECK(run_program(words, std::filesystem::current_path(), "/dev/full", kSeconds).exit_code == 3);
  }
  const Words sweep = {"verify", "--quick", "--kernel", "cpu:flash1", "-v"};
  CHECK(run_program(sweep, std::filesystem::current_path(), "/dev/full", kSeconds).exit_code == 3);
  CHECK(run_program({"--help"}, std::filesystem::current_path(), "/dev/full").exit_code == 3);
  CHECK(run_program({"--version"}, std::filesystem::current_path(), "/dev/full").exit_code == 3);
  CHECK(run_program({"list", "problems", "--log-file", "/dev/full"}).exit_code == 3);
}

}  // namespace tilescope::testing
