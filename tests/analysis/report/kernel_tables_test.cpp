// SPDX-License-Identifier: Apache-2.0
// Kernels of other commands in a report.
#include <doctest/doctest.h>

#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::section_names;

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
