// SPDX-License-Identifier: Apache-2.0
// What `verify` found, and kernels of other commands, in a report.
#include <doctest/doctest.h>

#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;
using testing::section_names;
using testing::simulated;

TEST_CASE("verdicts have a section, and a failed case stands out in it") {
  RunEntry judged = simulated(Algorithm::flash2, 64, {16, 16});
  for (PassRecord& pass : judged.passes) pass.simulated.reset();
  judged.error["o"] = {.max_abs = 3e-3, .rmse = 1e-4, .max_ulp = 2, .non_finite = 0, .bound = 2e-3};
  const Document verdicts = make_report({{fixed_record({judged})}});
  CHECK(section_names(verdicts) == std::set<std::string>{"errors", "records"});
  CHECK(contains(to_markdown(verdicts, "f"), "| cpu:flash2 | fp16 | 1 | **1** | 1.50 |"));
  CHECK(contains(to_markdown(verdicts, "f"), "| cpu:flash2 | **right in 0 of 1 cases** | 1.50 | fp16 |"));
  REQUIRE(verdicts.verdicts.size() == 1);
  CHECK(verdicts.verdicts[0].figures() == "0 of 1");
  CHECK(contains(verdicts.verdicts[0].sentence, "**No. 0 of 1** cases of 1 kernels"));
  CHECK(verdicts.verdicts[0].outcome == Outcome::bad);
}

TEST_CASE("what verify found of GPU kernels has columns and a section of its own") {
  RunEntry run = simulated(Algorithm::flash2, 64, {16, 16});
  run.kernel = "gpu:flash2-mma";
  run.runs_on = "gpu";
  run.error = {{"o", {1e-3, 1e-4, 2, 0, 2e-3}}};
  const std::string without = to_markdown(make_report({{fixed_record({run})}}), "figures");
  CHECK(contains(without, "| gpu:flash2-mma | fp16 | 1 | 0.50 |"));
  CHECK_FALSE(contains(without, "against mirror"));
  CHECK_FALSE(contains(without, "Are the results the same every time?"));
  run.cases = 12;
  run.failed = 1;
  run.mirror_error = {{"o", {1e-3, 1e-4, 2, 0, 4e-3, 5e-4}}};
  run.repeats = {{"o", {100, 0, 0, 2e-3, false}}, {"dq", {100, 99, 1e-4, 1e-3, true}}};
  const std::string with = to_markdown(make_report({{fixed_record({run})}}), "figures");
  CHECK(contains(with, "| gpu:flash2-mma | fp16 | 12 | **1** | 0.50 |"));
  CHECK(contains(with, "| 0.25 | 0.20 |"));
  CHECK(contains(with, "| dq | 1 | 100 | 99 | 0.100 | free (atomic adds) |"));
  CHECK(contains(with, "| o | 1 | 100 | 0 | - | fixed |"));
  run.repeats["dq"].may_differ = false;
  CHECK(contains(to_markdown(make_report({{fixed_record({run})}}), "figures"), "| **99** |"));
}

TEST_CASE("kernels of other commands are grouped by name and geometry") {
  KernelRecord record;
  record.argv = {"tilescope", "profile", "--json", "k.json", "--", "python3", "train.py", "--out", "there"};
  KernelMeasurement kernel;
  kernel.name = "void attention<float>(float*)";
  kernel.launch.grid = {10, 2, 1};
  kernel.measured = {{"sm_l2_read_bytes", 1e6}};
  record.kernels = {kernel, kernel};
  record.kernels[1].measured["sm_l2_read_bytes"] = 3e6;
  record.messages = {"counters were lost"};
  const Document document = make_report({.runs = {}, .kernels = {record}});
  CHECK(section_names(document) == std::set<std::string>{"kernels"});
  const std::string markdown = to_markdown(document, "f");
  for (const char* part :
       {"./tilescope profile -- python3 train.py --out there", "Not complete", "- counters were lost",
        "| `attention<float>` | 2 | 10x2x1 | 1x1x1 | - | 2 MB | - | - | - | - |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

}  // namespace
}  // namespace tilescope
