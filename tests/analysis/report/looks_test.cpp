// SPDX-License-Identifier: Apache-2.0
// One colour an algorithm; lines that bear their names; bounds only beside what they bound.
#include "analysis/report/figures/looks.hpp"

#include <doctest/doctest.h>

#include <iterator>
#include <regex>
#include <set>
#include <utility>

#include "analysis/report/figures/svg_frame.hpp"
#include "common/number_format.hpp"
#include "distributed/schedule/distributed_program.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::sweep_records;

TEST_CASE(
    "an algorithm has one colour, whatever its kernel, its choices and the order in which figures meet it") {
  CHECK(look_of("gpu:standard") == look_of("standard", Algorithm::standard));
  CHECK(look_of("gpu:flash2-mma fused (longest-first)").color == look_of("flash2 split").color);
  CHECK(look_of("gpu:mine", Algorithm::flash1).color == look_of("flash1").color);
  CHECK(look_of("gpu:flash3", Algorithm::flash2).color == Color::green);
  const char* const names[] = {"standard", "flash1", "flash2", "gpu:flash3"};
  for (const char* const a : names) {
    for (const char* const b : names) CHECK((look_of(a).color == look_of(b).color) == (a == b));
  }
  FigureLooks forward, backward;
  for (const char* const name : {"flash2 fused", "flash1", "standard"}) forward.take(name);
  for (const char* const name : {"standard", "flash2 fused", "flash1"}) backward.take(name);
  CHECK(forward.known() == backward.known());
}

TEST_CASE("what has one colour in a figure has markers of its own") {
  FigureLooks looks;
  const Look fused = looks.take("flash2 fused"), split = looks.take("flash2 split");
  CHECK(fused.color == split.color);
  CHECK(fused.marker != split.marker);
  CHECK(looks.take("flash2 fused") == fused);
}

TEST_CASE("each schedule of several GPUs looks like no other") {
  std::set<std::pair<Color, Marker>> looks;
  for (const LinkSchedule schedule : kLinkSchedules) {
    const Look look = look_of(std::string(to_string(schedule)));
    looks.emplace(look.color, look.marker);
  }
  CHECK(looks.size() == std::size(kLinkSchedules));
}

TEST_CASE("grey stands for no algorithm") {
  for (const char* const name :
       {"standard", "flash1", "flash2", "gpu:flash2-simt", "gpu:split-k", "gpu:flash3"}) {
    const Color color = look_of(name).color;
    CHECK(color != Color::grey);
    CHECK(color != Color::dark);
    CHECK(color != Color::ink);
  }
}

TEST_CASE("a bound at SM<->L2 stands in no plot of DRAM bytes") {
  std::size_t plots_at_sm_l2 = 0, plots_at_dram = 0;
  for (const Section& section : make_report({sweep_records()}).sections) {
    if (section.name != "seqlen") continue;
    for (const Block& block : section.blocks) {
      const Figure* const figure = std::get_if<Figure>(&block);
      for (const Panel& panel : figure ? figure->panels : std::vector<Panel>{}) {
        const bool dram = panel.title.starts_with("DRAM: ");
        (dram ? plots_at_dram : plots_at_sm_l2) += 1;
        CHECK(contains(panel.drawing.elements, ">lower bound<") == !dram);
        CHECK(contains(panel.drawing.elements, ">must move<"));
        CHECK(contains(panel.drawing.elements, ">flash2") == true);  // at its line, not in a legend
      }
    }
  }
  CHECK(plots_at_sm_l2 == 2);
  CHECK(plots_at_dram == 2);
}

TEST_CASE("names beside lines do not overlap, and stay beside the plot") {
  const ChartAxis axis{"x", {}, 1, 10, false};
  const Frame frame(axis, axis, 200, 80);
  const std::string drawn = draw_labels({{100, 50, "a", Color::blue},
                                         {100, 52, "b", Color::green},
                                         {100, 51, "b", Color::green},
                                         {100, 223, "c", Color::ink},
                                         {100, 224, "d", Color::ink}},
                                        frame);
  const std::regex text("<text class=\"k\" x=\"([0-9.]+)\" y=\"([0-9.]+)\">");
  std::vector<double> places;
  for (std::sregex_iterator at(drawn.begin(), drawn.end(), text), end; at != end; ++at) {
    CHECK(std::stod((*at)[1]) > frame.right);
    places.push_back(std::stod((*at)[2]));
  }
  REQUIRE(places.size() == 4);  // b once
  for (std::size_t i = 1; i < places.size(); ++i) CHECK(places[i] - places[i - 1] >= 13.9);
  CHECK(places.back() <= frame.bottom + 5);
}

TEST_CASE("ticks of an axis have no exponents") {
  for (const auto& [text, value] : logarithmic_ticks(2e-4, 8e6, format_tick)) {
    const std::string& label = text;  // clang captures no structured bindings
    CAPTURE(label);
    CHECK_FALSE(contains(label, "e-"));
    CHECK_FALSE(contains(label, "e+"));
  }
  CHECK(short_tick(format_tick(5e-4)) == "0.0005");
  CHECK(short_tick(format_tick(2e-5)) == "0.00002");
  CHECK(short_tick(format_tick(0.02)) == "0.02");
  CHECK(short_tick(format_tick(5e6)) == "5 M");
}

}  // namespace
}  // namespace tilescope
