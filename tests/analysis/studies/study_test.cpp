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
