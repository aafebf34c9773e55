// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/direction_total.hpp"

#include <doctest/doctest.h>

#include "tests/cli/diff_records.hpp"

namespace tilescope {
namespace {

using testing::kBytes;
using testing::run_of;

TEST_CASE("the total of a direction is the sum of its passes, but needs only what the direction needs") {
  const RunEntry run = run_of("cpu:flash2");
  const PassRecord total = direction_total(run, Direction::backward).value();
  CHECK(total.name == "dkdv+dq");
  CHECK(total.tile == kUnknownTile);
  CHECK(total.flops == useful_flops(run.problem, Direction::backward));
  CHECK(total.executed_flops == 2 * kBytes);
  const ReadWriteBytes needed = compulsory_bytes(run.problem, Direction::backward);
  CHECK(*total.closed_form == ClosedFormBytes{2 * kBytes, 2 * kBytes, needed.read_bytes, needed.write_bytes});
  CHECK(total.simulated->dram_read_bytes == 2 * kBytes);
  CHECK(*total.measured == MeasuredBytes{2 * kBytes, 2 * kBytes, 2 * kBytes, 2 * kBytes});
  CHECK(total.time->median_s == doctest::Approx(2e-3));
  CHECK(direction_total(run, Direction::forward)->name == "forward");
}

TEST_CASE("fetched code is added where every pass has it, what launches ranged over is not") {
  RunEntry run = run_of("cpu:flash2");
  for (PassRecord& pass : run.passes) {
    pass.measured->instruction_fetch_bytes = 100;
    pass.measured->dram_read_range = {kBytes, 2 * kBytes};
  }
  CHECK(direction_total(run, Direction::backward)->measured->instruction_fetch_bytes == 200);
  CHECK_FALSE(direction_total(run, Direction::backward)->measured->dram_read_range);
}

TEST_CASE("what one pass lacks the total lacks, and nothing else") {
  RunEntry run = run_of("cpu:flash2");
  run.passes.back().simulated.reset();
  run.passes.back().measured->dram_write_bytes.reset();
  const PassRecord total = direction_total(run, Direction::backward).value();
  CHECK_FALSE(total.simulated);
  CHECK_FALSE(total.measured->dram_write_bytes);
  CHECK(total.measured->dram_read_bytes == 2 * kBytes);
  CHECK(total.closed_form);
  run.passes.resize(1);
  CHECK_FALSE(direction_total(run, Direction::backward));
}

TEST_CASE("intervals of DRAM bytes add up end by end, where each pass has one") {
  RunEntry run = run_of("cpu:flash2");
  CHECK_FALSE(direction_total(run, Direction::backward)->simulated->dram_read_interval);
  for (PassRecord& pass : run.passes) pass.simulated->dram_read_interval = {3, 5};
  CHECK(direction_total(run, Direction::backward)->simulated->dram_read_interval ==
        std::array<std::int64_t, 2>{6, 10});
}

TEST_CASE("a pass keeps its DRAM bytes between the L2 sizes that it was replayed at, and past the last") {
  RunEntry run = run_of("cpu:flash2");
  run.passes[1].simulated->l2_curve = {{100, 9, 3}, {300, 5, 2}};
  run.passes[2].simulated->l2_curve = {{100, 90, 30}, {200, 50, 20}};
  const std::map<std::int64_t, ReadWriteBytes> expected = {{100, {99, 33}}, {200, {59, 23}}, {300, {55, 22}}};
  CHECK((total_l2_curve(run, Direction::backward) == expected));
  CHECK(total_l2_curve(run, Direction::forward).empty());
}

}  // namespace
}  // namespace tilescope
