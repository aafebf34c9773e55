// SPDX-License-Identifier: Apache-2.0
// What a report opens with: the picture of what moves, the verdict on it, and what changed against a
// baseline.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include "analysis/report/sections/bytes/multiples.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;
using testing::simulated;

const std::vector<RunEntry>& standard_and_flash2() {
  static const std::vector<RunEntry> both = {simulated(Algorithm::standard, 100, {24, 24}),
                                             simulated(Algorithm::flash2, 100, {24, 24})};
  return both;
}

TEST_CASE(
    "the picture has a panel for each kernel and direction, the worst first, with its bytes and multiples") {
  const std::vector<RunRecord> records = {fixed_record(standard_and_flash2())};
  const std::vector<RunSummary> runs = summarize(records);
  const auto picture = bytes_picture(runs);
  REQUIRE(picture);
  REQUIRE(picture->panels.size() == 4);
  const RunSummary* worst = &runs.front();
  for (const RunSummary& run : runs) {
    if (*dram_ratio(run) > *dram_ratio(*worst)) worst = &run;
  }
  CHECK(picture->panels[0].title == fmt::format("{}, {}", worst->label, to_string(worst->direction)));
  const std::string& drawn = picture->panels[0].drawing.elements;
  const auto text_of = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  for (const std::string& part :
       {">" + format_ratio(*dram_ratio(*worst)) + "<", ">" + format_ratio(*sm_l2_ratio(*worst)) + "<",
        ">read " + text_of(worst->closed_form->read_bytes) + "<",
        ">of " + text_of(worst->compulsory.total()) + "<",
        ">written " + text_of(worst->simulated_dram->write_bytes) + "<", std::string(">SMs<"),
        std::string(">L2<"), std::string(">DRAM<")}) {
    CAPTURE(part);
    CHECK(contains(drawn, part));
  }
  CHECK(contains(picture->caption, "every input read once and every output written once"));
}

TEST_CASE("one kernel alone has a picture without a choice, and bytes that are not known are none") {
  RunEntry counted = standard_and_flash2()[1];
  std::erase_if(counted.passes, [](const PassRecord& pass) { return pass.direction == Direction::backward; });
  for (PassRecord& pass : counted.passes) pass.simulated.reset();
  const std::vector<RunRecord> records = {fixed_record({counted})};
  const auto picture = bytes_picture(summarize(records));
  REQUIRE(picture);
  REQUIRE(picture->panels.size() == 1);
  CHECK(contains(picture->panels[0].drawing.elements, ">not counted<"));
  CHECK_FALSE(bytes_picture({}));
}

TEST_CASE("a multiple is bad from twice what must move on, and good up to a tenth above it") {
  CHECK(outcome_of_multiple(1.1) == Outcome::good);
  CHECK(outcome_of_multiple(1.11) == Outcome::mixed);
  CHECK(outcome_of_multiple(1.99) == Outcome::mixed);
  CHECK(outcome_of_multiple(2) == Outcome::bad);
  CHECK(outcome_of_multiple(16.8) == Outcome::bad);
}

TEST_CASE(
    "a verdict on bytes has the worst beside the best, with units, and the problem on which most is moved") {
  RunEntry longest = simulated(Algorithm::flash2, 256, {24, 24});
  const auto verdict = [&](const RunEntry& more) {
    return make_report({{fixed_record(standard_and_flash2()), fixed_record({more})}}).verdicts.at(0);
  };
  const Finding calm = verdict(longest);
  REQUIRE(calm.lines.size() == 3);
  CHECK(calm.lines[0].of == "`cpu:flash2` forward");
  CHECK(calm.lines[1].of == "`cpu:flash2` backward");
  CHECK(calm.lines[2].of == "`cpu:standard` forward");
  CHECK(contains(calm.figures(), "`cpu:flash2` forward: DRAM 1.00x, SM<->L2 "));
  CHECK_FALSE(contains(calm.sentence, "On other problems"));
  RunEntry alone = longest;
  std::erase_if(alone.passes, [](const PassRecord& pass) { return pass.direction == Direction::backward; });
  const Finding one = make_report({{fixed_record({alone})}}).verdicts.at(0);
  CHECK(one.lines.at(0).amounts.at(0).outcome == Outcome::good);
  CHECK(one.lines.at(0).amounts.at(1).outcome == Outcome::bad);
  CHECK(one.outcome == Outcome::mixed);  // no green card with a red number
  SimulatedBytes& bytes = *longest.passes.at(0).simulated;
  bytes.dram_read_bytes = 10 * bytes.dram_read_bytes;
  const Finding found = verdict(longest);
  CHECK(contains(found.sentence,
                 "On other problems kernels of this algorithm move more at DRAM: forward up to "));
  CHECK(contains(found.sentence, "N256"));
  CHECK(found.outcome == Outcome::mixed);
}

TEST_CASE("one kernel, two records of it, and a sweep have a verdict on bytes and a row for every run") {
  const RunEntry short_run = simulated(Algorithm::flash2, 64, {16, 16});
  std::vector<RunEntry> sweep, of_three;
  for (const std::int64_t seqlen : {64, 128, 256, 512}) {
    sweep.push_back(simulated(Algorithm::flash2, seqlen, {16, 16}));
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2})
      of_three.push_back(simulated(algorithm, seqlen, {16, 16}));
  }
  RunEntry backward = short_run, counted = short_run;
  std::erase_if(backward.passes, [](const PassRecord& pass) { return pass.direction == Direction::forward; });
  for (PassRecord& pass : counted.passes) pass.simulated.reset();
  const std::vector<std::vector<RunRecord>> cases = {
      {fixed_record({short_run})}, {fixed_record({short_run}), fixed_record({sweep[1]})},
      {fixed_record(sweep)},       {fixed_record(of_three)},
      {fixed_record({backward})},  {fixed_record({counted})}};
  for (const std::vector<RunRecord>& records : cases) {
    const Document document = make_report({records});
    REQUIRE(document.verdicts.size() == 1);
    CHECK(document.picture);
    const Finding& verdict = document.verdicts[0];
    CHECK(verdict.question == "Do they move more than they must?");
    CHECK(contains(verdict.figures(), &records == &cases[5]   ? "`cpu:flash2` forward: SM<->L2"
                                      : &records == &cases[4] ? "`cpu:flash2` backward: DRAM"
                                                              : "`cpu:flash2` forward: DRAM"));
    const std::string text = to_markdown(with_section_alone(document, "summary"), "f");
    std::size_t rows = 0, runs = 0;
    for (std::size_t at = 0; (at = text.find("| forward | ", at)) != std::string::npos; ++at) ++rows;
    for (const RunRecord& record : records) {
      for (const RunEntry& run : record.runs) {
        runs += &records != &cases[4];
        CHECK(contains(text, "| **B1 H2 N" + std::to_string(run.problem.seqlen_q) + " D64 fp16, "));
      }
    }
    CHECK(rows == runs);
  }
}

TEST_CASE("a comparison of two algorithms stays the verdict when records of one are added") {
  const RunRecord both = fixed_record(standard_and_flash2());
  const RunRecord sweep = fixed_record(
      {simulated(Algorithm::standard, 64, {16, 16}), simulated(Algorithm::flash2, 64, {16, 16}),
       simulated(Algorithm::standard, 128, {16, 16}), simulated(Algorithm::flash2, 128, {16, 16}),
       simulated(Algorithm::standard, 256, {16, 16}), simulated(Algorithm::flash2, 256, {16, 16})});
  const RunRecord alone = fixed_record({simulated(Algorithm::flash2, 100, {32, 32})});
  for (const RunRecord& compared : {both, sweep}) {
    const Document document = make_report({{compared, alone}});
    REQUIRE(document.verdicts.size() == 1);
    CHECK(contains(document.verdicts[0].figures(), "; `cpu:standard` forward: DRAM "));
  }
}

KernelMeasurement foreign_kernel(const std::string& name, std::map<std::string, double> bytes) {
  KernelMeasurement kernel;
  kernel.name = name;
  kernel.measured = std::move(bytes);
  return kernel;
}

TEST_CASE("kernels of another command have a picture and a verdict, which says how to learn what must move") {
  KernelRecord record;
  record.argv = {"tilescope", "profile", "--", "python3", "mine.py"};
  record.kernels = {
      foreign_kernel("small", {{"sm_l2_read_bytes", 100}, {"sm_l2_write_bytes", 100}}),
      foreign_kernel("large",
                     {{"sm_l2_read_bytes", 4000}, {"sm_l2_write_bytes", 1000}, {"dram_read_bytes", 2000}})};
  ReportRecords records;
  records.kernels = {record};
  const Document document = make_report(records);
  REQUIRE(document.picture);
  CHECK(document.picture->panels[0].title == "large");
  CHECK(contains(document.picture->panels[0].drawing.elements, ">read 2 kB<"));
  REQUIRE(document.verdicts.size() == 1);
  CHECK(document.verdicts[0].figures() == "`large`: DRAM read 2 kB, SM<->L2 5 kB; `small`: SM<->L2 200 B");
  CHECK(contains(document.verdicts[0].sentence, "`tilescope explain RECORD"));
  CHECK(contains(document.verdicts[0].sentence, "by counters"));
  records.kernels[0].kernels[0].emulated.emplace();
  CHECK(contains(make_report(records).verdicts[0].sentence, "by emulation"));
  CHECK(contains(make_report(records).picture->caption, "by emulation"));
  for (const Section& section : document.sections)
    CHECK(section.open);  // one line on a white page says nothing
}

TEST_CASE("against a baseline a page says what became less and what became more") {
  const RunRecord base = fixed_record({standard_and_flash2()[1]});
  RunRecord now = base;
  for (PassRecord& pass : now.runs[0].passes) {
    pass.closed_form->sm_l2_read_bytes *= 2;
    pass.simulated->dram_read_bytes /= 2;
  }
  ReportRecords records;
  records.runs = {now};
  records.baseline = {base};
  const Document document = make_report(records);
  const Finding& verdict = document.verdicts.at(0);
  CHECK(verdict.figures() == "less 2, more 2");
  CHECK(verdict.outcome == Outcome::mixed);
  REQUIRE(document.sections.at(0).name == "changes");
  // Of both sides, with the zero from which the changes lead.
  const Figure& figure = std::get<Figure>(document.sections[0].blocks.at(0));
  for (const char* tick : {">-50</text>", ">0</text>", ">50</text>"})
    CHECK(contains(figure.panels.at(0).drawing.elements, tick));
  const Table& table = std::get<Table>(document.sections[0].blocks.at(1));
  std::size_t good = 0, bad = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    good += table.outcomes[i] == Outcome::good && table.rows[i].back() == "-50.0 %";
    bad += table.outcomes[i] == Outcome::bad && table.rows[i].back() == "+100.0 %";
  }
  CHECK(good == 2);
  CHECK(bad == 2);
  records.runs = {base};
  CHECK(make_report(records).verdicts.at(0).figures() == "less 0, more 0");
  CHECK(
      contains(to_markdown(make_report(records), "f"), "No number of the runs that both have has changed."));
}

}  // namespace
}  // namespace tilescope
