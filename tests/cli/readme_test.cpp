// SPDX-License-Identifier: Apache-2.0
// README.md against the program: its examples print what they show, and its table has every command.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>

#include "analysis/records/files/text_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

std::vector<std::string> lines_of(std::istream&& text) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(std::string(TILESCOPE_SOURCE_DIR "/") + file);
  return {std::istreambuf_iterator(stream), {}};
}

std::vector<std::string> readme() { return lines_of(std::ifstream(TILESCOPE_SOURCE_DIR "/README.md")); }

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

/// What a machine without ptxas says besides is no part of the README.
std::string without(std::string text, std::string_view besides) {
  const std::size_t at = text.find(besides);
  return at == std::string::npos ? text : text.erase(at, besides.size());
}

/// The words of all lines, which may be folded elsewhere.
std::string flat(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    for (const std::string& word : words_of(line)) text += word + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("the README's examples print what it shows") {
  const std::string prompt = "$ ./tilescope ";
  const std::vector<std::string> lines = readme();
  int examples = 0;
  for (auto line = lines.begin(); line != lines.end(); ++line) {
    if (!line->starts_with(prompt)) continue;
    ++examples;
    const std::vector<std::string> words = words_of(line->substr(prompt.size()));
    CAPTURE(*line);
    const ProgramResult result = run_program(words, TILESCOPE_SOURCE_DIR);
    CHECK(result.exit_code == 0);
    if (words[0] == "verify") continue;  // its digits depend on the vector units of the machine
    const std::vector<std::string> shown(line + 1, std::find(line, lines.end(), "```"));
    const std::vector<std::string> printed = lines_of(std::istringstream(result.out));
    CAPTURE(result.out);
    const std::string words_printed = flat(printed),
                      unknown = " (how ptxas places them is not known: as if all did)";
    // Where ptxas is not found, a sentence is longer, and folded elsewhere.
    const bool same = words_printed.find(unknown) == std::string::npos
                          ? shown == printed
                          : flat(shown) == without(words_printed, unknown);
    CHECK(same);
  }
  CHECK(examples >= 2);
}

TEST_CASE("what people come for takes two commands each, which run as they stand") {
  const TemporaryFolder folder;
  const auto at = [&folder](const char* name) { return folder.path() / name; };
  const std::vector<std::string> lines = readme();
  const std::regex command("`[.]/tilescope ([^`]+)`");
  int rows = 0;
  for (auto line = std::find(lines.begin(), lines.end(), "| you want | two commands |") + 2;
       line < lines.end() && line->starts_with("|"); ++line, ++rows) {
    int commands = 0;
    for (std::sregex_iterator found(line->begin(), line->end(), command), end; found != end; ++found) {
      ++commands;
      std::vector<std::string> words = words_of((*found)[1]);
      std::ranges::replace(words, std::string("seqlen"), std::string("paper-figure2"));  // a minute
      CAPTURE(*line);
      if (words[0] == "profile") {  // on a GPU, where this record is from
        std::filesystem::copy_file(TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json.gz", at("k.json"));
      } else {
        CHECK(run_program(words, folder.path()).exit_code == 0);
      }
      if (words[0] == "simulate") std::filesystem::copy_file(at("new.json"), at("base.json"));
    }
    CHECK(commands == 2);
  }
  CHECK(rows == 3);
  CHECK(std::filesystem::exists(at("DIR/report.html")));
  CHECK(std::filesystem::exists(at("DIR/figures/bytes-flow.svg")));
  const std::string text = flat(lines);
  CHECK(text.find(
            "judges TileScope's tile programs: the tiles, orders and formulas that you choose, no code of "
            "yours.") != std::string::npos);
  CHECK(text.find("actions/cache") != std::string::npos);  // else each run builds
}

TEST_CASE("files that a page links to are there") {
  const std::regex link("\\]\\(([^)#: ]+)(#[^)]*)?\\)");
  int links = 0;
  const auto check_page = [&](const std::filesystem::path& page) {
    const std::string text = read_text_file(page.string());
    for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
      CAPTURE(page.string());
      CAPTURE(found->str());
      CHECK(std::filesystem::exists(page.parent_path() / (*found)[1].str()));
      ++links;
    }
  };
  for (const auto& top : std::filesystem::directory_iterator(TILESCOPE_SOURCE_DIR)) {
    if (top.path().extension() == ".md") check_page(top.path());
    const std::string name = top.path().filename().string();
    if (!top.is_directory() || name == "build" || name.starts_with(".")) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top.path())) {
      if (entry.path().extension() == ".md") check_page(entry.path());
    }
  }
  CHECK(links > 100);
}

TEST_CASE("sentences that had to be read twice are nowhere") {
  std::string all;
  for (const std::string& line : readme()) all += line + "\n";
  for (const char* folder : {"/analysis", "/common", "/cpu_ref", "/distributed", "/emulator", "/gpu",
                             "/profiler", "/python", "/reports"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(TILESCOPE_SOURCE_DIR + std::string(folder))) {
      const std::string end = entry.path().extension().string();
      if (end == ".cpp" || end == ".hpp" || end == ".md") all += read_text_file(entry.path().string());
    }
  }
  for (const char* words : {"highest rung whose",
                            "as they were measured to get on",
                            "assumed to keep step",
                            "that it saves nothing in",
                            "no number of the model knows",
                            "right about what nothing was fitted",
                            "no such machine reaches",
                            "still those of the whole chip",
                            "counted causes do not cover it",
                            "what was written by halves does",
                            "must be left out; see --help",
                            "at most 63 bits",
                            "kernel's own is beaten",
                            "least of both",
                            "1 threads",
                            "runs what its owner built",
                            "written, spills read back",
                            "all would be within 15 %",
                            "tiles or tensors that no candidate",
                            "may not write to it runs",
                            "move up to, at DRAM",
                            "% of what fits"}) {
    CAPTURE(words);
    CHECK(all.find(words) == std::string::npos);
  }
}

TEST_CASE("what must move has one name, and a bound on time is called one") {
  std::vector<std::string> printed = {text_of("reports/report.md"), text_of("reports/io_complexity.md")};
  for (const char* command :
       {"simulate --seqlen 256 --pass fwd+bwd --detail --explain-model", "simulate --seqlen 256 --advise",
        "simulate --seqlen 256 --kernel cpu:flash2", "compare cpu:flash1 cpu:flash2 --seqlen 256",
        "help simulate", "help explain", "help problem"})
    printed.push_back(run_program(words_of(command)).out);
  for (const std::string& text : printed) {
    CAPTURE(text.substr(0, 200));
    CHECK_FALSE(text.empty());
    for (const char* other : {"compulsory", "Compulsory", "least time", "must be moved at"}) {
      CAPTURE(other);
      CHECK(text.find(other) == std::string::npos);
    }
  }
  CHECK(printed[4].find("forward must move ") != std::string::npos);  // of one kernel too
  CHECK(printed[4].find("time bound") != std::string::npos);
}

TEST_CASE("the README's table has the commands of --help") {
  std::vector<std::string> documented, offered;
  for (const std::string& line : readme()) {
    if (!line.starts_with("| `")) continue;
    documented.push_back(line.substr(3, line.find('`', 3) - 3));
    CAPTURE(line);
    CHECK(words_of(line).size() <= 30);  // a line each; the rest stands where its link leads
  }
  const std::vector<std::string> help = lines_of(std::istringstream(run_program({"--help"}).out));
  for (auto line = std::find(help.begin(), help.end(), "Commands:") + 1; line < help.end(); ++line) {
    if (line->empty()) break;
    if (!line->starts_with("   ")) offered.push_back(words_of(*line)[0]);  // else the rest of a summary
  }
  std::sort(documented.begin(), documented.end());
  std::sort(offered.begin(), offered.end());
  CHECK(offered.size() >= 9);
  std::string text;
  for (const std::string& name : offered) text += name + " ";
  CAPTURE(text);
  const bool same = documented == offered;
  CHECK(same);
}

TEST_CASE("the README says how long the first commands take") {
  const std::string text = std::regex_replace(text_of("README.md"), std::regex("\\s+"), " ");
  for (const std::string command : {"`demo`", "`test`"}) {
    CAPTURE(command);
    CHECK(std::regex_search(text, std::regex(command + "[^.;]{0,80} takes? [^.;]{0,40}(minutes|seconds)")));
  }
}

TEST_CASE("CONTRIBUTING names files that are there, and every kind of a machine's numbers") {
  const std::string text = text_of("CONTRIBUTING.md");
  const std::regex path("`((?:[a-z_]+|[.]ci)/[a-z0-9_./]+)`");
  int paths = 0;
  for (std::sregex_iterator found(text.begin(), text.end(), path), end; found != end; ++found) {
    const std::string name = (*found)[1];
    if (name.starts_with("build/")) continue;  // which is made
    ++paths;
    CAPTURE(name);
    const std::string file = TILESCOPE_SOURCE_DIR "/" + name;
    CHECK((std::filesystem::exists(file) || std::filesystem::exists(file + ".hpp")));
  }
  CHECK(paths >= 20);

  const std::string machine = run_program({"list", "machines", "--template"}).out;
  std::smatch kinds;
  REQUIRE(std::regex_search(machine, kinds, std::regex("\"kind\": \"([a-z, ]+)\"")));
  const std::string list = kinds[1];
  const std::regex word("[a-z]{3,}");
  for (std::sregex_iterator kind(list.begin(), list.end(), word), end; kind != end; ++kind) {
    CAPTURE(kind->str());
    CHECK(text.find(kind->str()) != std::string::npos);
  }
}

}  // namespace tilescope::testing
