// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/study.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;

TEST_CASE("every study plans labelled tasks on its machine, and what one plans is simulated there") {
  for (const Study& study : studies()) {
    CAPTURE(std::string(study.name));
    CHECK(&find_study(study.name) == &study);
    const Machine machine =
        study.default_machine.empty() ? Machine{} : load_machine(std::string(study.default_machine));
    if (study.plan == nullptr) continue;  // draws by a seed
    const std::vector<StudyTask> tasks = study.plan(machine);
    CHECK(tasks.size() >= 3);
    for (const StudyTask& task : tasks) CHECK_FALSE(task.label.empty());
  }
  CHECK_THROWS_AS(find_study("seqlem"), BadInput);
  const Machine machine = load_machine("h200");
  const std::vector<RunEntry> runs = find_study("seqlen").plan(machine).front().run();
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].passes.front().simulated->machine == "h200");
}

TEST_CASE("what finer parts on the diagonal save has a section of its own, by length and mask") {
  const Machine machine = load_machine("h200");
  std::vector<RunEntry> runs;
  for (const StudyTask& task : find_study("diagonal").plan(machine)) {
    for (RunEntry& run : task.run()) runs.push_back(std::move(run));
  }
  const Document document = make_report({{fixed_record(runs)}});
  CHECK(testing::section_names(document) == std::set<std::string>{"diagonal", "records"});
  const std::string markdown = to_markdown(document, "f");
  // Of 512 x 513 / 2 visible pairs: 10 tiles of 128 x 128, 36 parts of 64 x 64, 136 of 32 x 32, 528 of 16
  // x 16.
  for (const char* direction : {"forward", "backward"}) {
    CAPTURE(direction);
    CHECK(contains(markdown, std::string(direction) +
                                 " | B1 H16 N512 D128 fp16 causal | 128x128 | 1.248 | 1.123 "
                                 "| 1.060 | 1.029 | +0.00 % |"));
  }
  // The edge of a window lies inside tiles: slices before it are not loaded.
  const std::size_t row = markdown.find("forward | B1 H16 N16384 D128 fp16 causal window(300,-1)");
  REQUIRE(row != std::string::npos);
  const std::string saved = markdown.substr(row, markdown.find('\n', row) - row);
  CHECK(contains(saved, "| -"));
  // In a record with runs that were replayed, they stand among the others.
  runs.push_back(testing::simulated(Algorithm::flash2, 64, {16, 16}));
  CHECK(!testing::section_names(make_report({{fixed_record(runs)}})).contains("diagonal"));
}

TEST_CASE("the paper's Figure 2 is recounted to the digits that hold") {
  const Machine machine = load_machine("a100-40gb");
  std::vector<RunEntry> runs;
  for (const StudyTask& task : find_study("paper-figure2").plan(machine)) {
    for (RunEntry& run : task.run()) runs.push_back(std::move(run));
  }
  const std::string markdown = to_markdown(make_report({{fixed_record(runs)}}), "f");
  for (const char* part :
       {"824.6 / 962.1", "12.4x and 12.8x", "40.27 / 4.43", "| 6.6 | 6.58 |", "| 0.9 | 0.94 |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

}  // namespace
}  // namespace tilescope
