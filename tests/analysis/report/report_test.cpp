// SPDX-License-Identifier: Apache-2.0
// Which sections and figures a report has, and that equal records give equal bytes.
#include "analysis/report/report.hpp"

#include <doctest/doctest.h>
#include <filesystem>
#include <limits>
#include <set>

#include "analysis/report/figures/charts.hpp"
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
    CHECK(contains(to_svg(*figure), "</svg>"));
    for (const Panel& panel : figure->panels) CHECK(panel.drawing.height > 100);
    if (contains(figure->name, "roofline")) CHECK(!figure->caption.empty());
    CHECK(reproduction(figure->commands) ==
          std::vector<std::string>{"./tilescope simulate --causal 'a b' --json run.json",
                                   "./tilescope report run.json"});
  }
  CHECK(names == std::set<std::string>{"bytes-against-seqlen-forward-1", "bytes-against-seqlen-backward-1",
                                       "bytes-against-block-size-forward-1",
                                       "bytes-against-block-size-backward-1", "bytes-by-tensor",
                                       "dram-against-l2-forward", "dram-against-l2-backward",
                                       "roofline-forward", "roofline-backward", "softmax-roofline-forward",
                                       "softmax-roofline-backward"});
}

TEST_CASE("of many problems the largest have charts, and all a row") {
  std::vector<RunEntry> runs;
  for (const int heads : {3, 6, 1, 5, 2, 4}) {
    runs.push_back(simulated(Algorithm::flash2, 64, {16, 16}));
    runs.back().problem.heads = runs.back().problem.heads_kv = heads;  // its bytes are of no interest here
  }
  const Document document = make_report({{fixed_record(runs)}});
  for (const Figure* figure : figures(document)) {
    if (!contains(figure->name, "roofline")) continue;
    CAPTURE(figure->name);
    REQUIRE(figure->panels.size() == 3);
    for (const Panel& panel : figure->panels) {
      CHECK(contains(panel.title, "NVIDIA H200"));
      CHECK_FALSE(contains(panel.title, "H1 "));
      CHECK_FALSE(contains(panel.title, "H2 "));
      CHECK_FALSE(contains(panel.title, "H3 "));
    }
  }
  const std::string markdown = to_markdown(document, "f");
  const std::size_t roofline = markdown.find("## Roofline (NVIDIA H200"),
                    end = markdown.find("\n### ", roofline + 1);
  const std::string section = markdown.substr(roofline, end - roofline);
  for (int heads = 1; heads <= 6; ++heads) {
    CHECK(contains(section, "| **B1 H" + std::to_string(heads) + " N64 D64 fp16** |"));
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

TEST_CASE("a limit that rests on an unverified number says so") {
  const auto roofline_of = [](const char* machine) {
    RunEntry run = simulated(Algorithm::flash2, 1024, {64, 64});
    for (PassRecord& pass : run.passes) pass.simulated->machine = machine;
    const std::string text = to_markdown(make_report({{fixed_record({run})}}), "f");
    return text.substr(text.find("## Roofline"));
  };
  CHECK(contains(roofline_of("rtx-5070-ti"), "/s **unverified**"));
  CHECK(contains(roofline_of("rtx-5070-ti"), "fp16 peak (unverified), at 100 % |"));
  CHECK_FALSE(contains(roofline_of("h200"), "unverified"));
}

TEST_CASE("an L2 curve is drawn of the points that axes have a place for, whatever a record holds") {
  constexpr std::int64_t kMost = (std::int64_t{1} << 53) - 1;
  const auto curve_of = [](std::vector<L2CurvePoint> points) {
    RunEntry run = simulated(Algorithm::flash2, 64, {16, 16});
    for (PassRecord& pass : run.passes) pass.simulated->l2_curve = points;
    const Document document = make_report({{fixed_record({run})}});
    for (const ReportFile& file : report_files(document)) CHECK_FALSE(contains(file.contents, "nan"));
    return section_names(document).contains("l2");
  };
  CHECK_FALSE(curve_of({{0, 100, 100}}));
  CHECK_FALSE(curve_of({{0, 0, 0}}));
  CHECK_FALSE(curve_of({{4096, 0, 0}, {8192, 0, 0}}));
  CHECK(curve_of({{3, 100, 100}}));
  CHECK(curve_of({{0, 100, 100}, {std::int64_t{1} << 62, 100, 0}}));
  CHECK(curve_of({{std::numeric_limits<std::int64_t>::max(), 100, 100}}));
  CHECK(curve_of({{kMost, kMost, kMost}}));
}

TEST_CASE("cards and rooflines compare kernels of one record, not those of a study of some other tile") {
  const RunRecord alike = fixed_record(
      {simulated(Algorithm::standard, 100, {24, 24}), simulated(Algorithm::flash2, 100, {24, 24})});
  const RunRecord study = fixed_record({simulated(Algorithm::standard, 100, {96, 96})});
  ReportRecords one, both;
  one.runs = {alike};
  both.runs = {study, alike};
  const Document without = make_report(one), with = make_report(both);
  REQUIRE(with.verdicts.size() == 1);
  CHECK(contains(with.verdicts[0].figures(), "`cpu:flash2` backward: DRAM"));
  CHECK(with.verdicts[0].sentence == without.verdicts[0].sentence);
  const auto roofline_of = [](const Document& document) {
    for (const ReportFile& file : report_files(document)) {
      if (file.path == "figures/roofline-forward.svg") return file.contents;
    }
    return std::string();
  };
  CHECK(contains(roofline_of(with), "standard"));
  CHECK_FALSE(contains(roofline_of(with), "96x96"));
}

TEST_CASE("the title of a figure's only panel opens its caption") {
  Figure figure{.name = "bytes", .title = "Bytes.", .caption = "They grow."};
  figure.panels = {{"B1 H2 N64", {}}};
  CHECK(caption_text(figure) == "B1 H2 N64. They grow.");
  figure.panels.push_back({"B1 H2 N128", {}});
  CHECK(caption_text(figure) == "They grow.");
}

TEST_CASE("a caption tells the tile that is drawn, or that each kernel has its own") {
  std::vector<RunEntry> alike, unlike;
  for (const std::int64_t seqlen : {64, 128, 256}) {
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash2}) {
      const int rows = algorithm == Algorithm::flash2 ? 32 : 16;
      alike.push_back(simulated(algorithm, seqlen, {16, 16}));
      unlike.push_back(simulated(algorithm, seqlen, {rows, 16}));
    }
  }
  const auto caption_of = [](const std::vector<RunEntry>& runs) {
    const Document document = make_report({{fixed_record(runs)}});
    for (const Figure* figure : figures(document)) {
      if (contains(figure->name, "bytes-against-seqlen-forward")) return figure->caption;
    }
    return std::string();
  };
  CHECK(contains(caption_of(alike), "Tile 16x16."));
  CHECK(contains(caption_of(unlike), "Each kernel has its own tile."));
  CHECK_FALSE(contains(caption_of(unlike), "16x16"));
}

TEST_CASE("every heading that depends on a machine names it") {
  const Document document = make_report({sweep_records()});
  for (const Section& section : document.sections) {
    if (section.name == "records" || section.name == "tensors") continue;
    CAPTURE(section.title);
    CHECK((contains(section.title, "h200 model") || contains(section.title, "NVIDIA H200")));
  }
}

TEST_CASE("equal points of charts have places inside the frame") {
  LineChart chart;
  chart.x = {"x", {{"1", 1}, {"1000000", 1.01}, {"100", 100}}, 1, 100};
  chart.y = {"y", {{"0", 0}, {"5", 5}}, 0, 5, false};
  chart.series = {{"a & b", {.color = Color::blue, .marker = Marker::circle}, {{1, 0}, {100, 5}}}};
  const std::string without = draw(chart).elements;
  CHECK(contains(without, "points=\"15.1,244 390,24\""));
  CHECK(contains(without, "data-s=\"a &amp; b\""));
  CHECK_FALSE(contains(without, "data-t"));
  CHECK_FALSE(contains(without, ">1000000<"));  // no room beside its neighbour
  chart.x.format = chart.y.format = [](double value) { return std::to_string(static_cast<int>(value)); };
  CHECK(contains(draw(chart).elements, "data-t=\"1: 0|100: 5\""));
  CHECK(draw(chart, false).height < draw(chart).height);
}

}  // namespace
}  // namespace tilescope
