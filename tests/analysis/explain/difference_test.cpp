// SPDX-License-Identifier: Apache-2.0
// Why two runs move different bytes is said to the last byte, or it is said what is left over.
#include "analysis/explain/difference.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::simulated;

std::string why(const RunEntry& one, const RunEntry& other) {
  const auto run_of = [](const char* label, const RunEntry& run) {
    const auto kernel =
        std::ranges::find_if(cpu_kernels(), [&run](const Kernel& each) { return each.name == run.kernel; });
    return ComparedRun{label, &*kernel, &run};
  };
  return why_different(run_of("A", one), run_of("B", other), Direction::forward, nullptr);
}

TEST_CASE("bytes of a record that its programs do not move are named, and the totals compared") {
  const RunEntry small = simulated(Algorithm::flash2, 128, {16, 16});
  RunEntry large = simulated(Algorithm::flash2, 128, {32, 16});
  CHECK(contains(why(small, large), "by tiles of 16x16 against 32x16"));
  CHECK_FALSE(contains(why(small, large), "no tensor explains"));
  large.passes.front().closed_form->sm_l2_read_bytes += 4096;
  const std::string text = why(small, large);
  CHECK(contains(text, "as much at SM<->L2 as B."));
  CHECK(contains(text, "move 4.096 kB less than the record of B holds: no tensor explains the difference."));
  large.passes.front().closed_form->sm_l2_read_bytes -= 8192;
  CHECK(contains(why(small, large), "move 4.096 kB more than the record of B holds"));
}

TEST_CASE("DRAM bytes that differ by less than is printed are told as no difference, without a cause") {
  const RunEntry one = simulated(Algorithm::flash2, 128, {16, 16});
  RunEntry other = one;
  other.scan = Scan::descending;
  std::int64_t& read = other.passes.front().simulated->dram_read_bytes;
  const std::int64_t all = other.passes.front().simulated->dram_bytes();
  read += all * 3 / 1000;
  CHECK(why(one, other) == "A and B move the same at SM<->L2, and at DRAM within 0.3 %.");
  read += all * 3 / 1000;
  CHECK(contains(why(one, other), "at DRAM B moves 1.01x as much as A: B walks its tiles descending"));
}

}  // namespace
}  // namespace tilescope
