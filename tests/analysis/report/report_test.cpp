// SPDX-License-Identifier: Apache-2.0
// Which sections and figures a report has, and that equal records give equal bytes.
#include "analysis/report/report.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <set>

#include "common/errors.hpp"
#include "tests/analysis/report/report_records.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;
using testing::section_names;
using testing::simulated;
using testing::sweep_records;

std::vector<const Figure*> figures(const Document& document) {
  std::vector<const Figure*> all;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (const Figure* figure = std::get_if<Figure>(&block)) all.push_back(figure);
    }
  }
  return all;
}

TEST_CASE("sections appear when their data are there") {
  const Document everything = make_report({sweep_records()});
  CHECK(section_names(everything) == std::set<std::string>{"summary", "tensors", "seqlen", "block-size", "l2",
                                                           "roofline", "passes", "records"});
  CHECK(section_names(make_report({{fixed_record({})}})) == std::set<std::string>{"records"});
  std::set<std::string> names;
  for (const Figure* figure : figures(everything)) {
    CAPTURE(figure->name);
    CHECK(names.insert(figure->name).second);
    CHECK(contains(figure->svg, "</svg>"));
    CHECK(reproduction(figure->commands) ==
          std::vector<std::string>{"./tilescope simulate --causal 'a b' --json run.json",
                                   "./tilescope report run.json"});
  }
  CHECK(names.size() == 11);
}

TEST_CASE("of many problems the largest have charts, and all a row") {
  std::vector<RunEntry> runs;
  for (const int heads : {3, 6, 1, 5, 2, 4}) {
    runs.push_back(simulated(Algorithm::flash2, 64, {16, 16}));
    runs.back().problem.heads = runs.back().problem.heads_kv = heads;  // its bytes are of no interest here
  }
  const Document document = make_report({{fixed_record(runs)}});
  std::set<std::string> names;
  for (const Figure* figure : figures(document)) names.insert(figure->name);
  CHECK(names.contains("roofline-forward-4"));
  CHECK(names.contains("softmax-roofline-backward-4"));
  CHECK_FALSE(names.contains("roofline-forward-5"));
  const std::string markdown = to_markdown(document, "f");
  const std::size_t roofline = markdown.find("## Roofline"), end = markdown.find("## Every pass");
  const std::string section = markdown.substr(roofline, end - roofline);
  for (const int heads : {1, 2}) {
    CHECK(contains(section, "| **B1 H" + std::to_string(heads) + " N64 D64 fp16** |"));
  }
  for (const int heads : {3, 4, 5, 6}) {
    CHECK(contains(section, "B1 H" + std::to_string(heads) + " N64 D64 fp16"));
    CHECK_FALSE(contains(section, "| **B1 H" + std::to_string(heads) + " N64"));
  }
}

TEST_CASE("equal records give equal bytes, free of this machine") {
  const std::vector<RunRecord> records = sweep_records();
  const std::vector<ReportFile> once = report_files(make_report({records}));
  const std::vector<ReportFile> again = report_files(make_report({records}));
  REQUIRE(once.size() == again.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    CAPTURE(once[i].path);
    CHECK(once[i].path == again[i].path);
    CHECK(once[i].contents == again[i].contents);
    CHECK_FALSE(contains(once[i].contents, std::filesystem::temp_directory_path().string() + "/"));
    CHECK_FALSE(contains(once[i].contents, TILESCOPE_SOURCE_DIR));
  }
}

TEST_CASE("without gnuplot nothing is written, and the package is named") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "tilescope_report_test_absent";
  std::filesystem::remove_all(folder);
  const std::string path = getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  std::string message;
  try {
    write_report({sweep_records()}, folder.string());
  } catch (const MachineLacks& error) {
    message = error.what();
  }
  setenv("PATH", path.c_str(), 1);
  CHECK(contains(message, "gnuplot-nox"));
  CHECK_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace tilescope
