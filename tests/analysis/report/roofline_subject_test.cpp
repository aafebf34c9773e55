// SPDX-License-Identifier: Apache-2.0
// What a roofline takes from a record: measured figures where there are, models elsewhere.
#include "analysis/report/sections/speed/roofline_figures.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/report/sections/report_sections.hpp"
#include "tests/cli/diff_records.hpp"

namespace tilescope {
namespace {

using testing::kBytes;
using testing::record_of;
using testing::run_of;

RunEntry half_precision_run() {
  RunEntry run = run_of("gpu:flash2-mma");
  run.problem.dtype = ElementType::fp16;
  return run;
}

}  // namespace

TEST_CASE("a measured run stands on its device's ceilings, with its bytes and its time") {
  RunEntry run = half_precision_run();
  for (PassRecord& pass : run.passes) {
    pass.simulated.reset();
    pass.exponentials = run.problem.visible_pairs();
    pass.measured = MeasuredBytes{3 * kBytes, kBytes, 2 * kBytes, kBytes};
  }
  RunRecord record = record_of({run});
  record.machine.name = "NVIDIA H200";
  const std::vector<RunRecord> records = {record};
  const RunSummary summary = summarize(records).front();
  const auto ceilings = run_ceilings(summary);
  REQUIRE(ceilings);
  CHECK(ceilings->machine_title.starts_with("NVIDIA H200"));
  const auto subject = roofline_subject(summary, *ceilings);
  REQUIRE(subject);
  CHECK(subject->timed);
  CHECK(subject->seconds == doctest::Approx(1e-3));
  CHECK(subject->work.sm_l2_bytes == 4 * kBytes);
  CHECK(subject->work.dram_bytes == 3 * kBytes);
  CHECK(subject->dram_measured);
  CHECK(subject->work.exponentials == run.problem.visible_pairs());
  CHECK(subject->intensity(6.0 * kBytes, CeilingKind::dram).value() == doctest::Approx(2));
}

TEST_CASE("a simulated run stands at what the ceilings allow") {
  RunEntry run = half_precision_run();
  for (PassRecord& pass : run.passes) {
    pass.measured.reset();
    pass.time.reset();
  }
  const std::vector<RunRecord> records = {record_of({run})};
  const RunSummary summary = summarize(records).front();
  const auto ceilings = run_ceilings(summary);
  REQUIRE(ceilings);
  const auto subject = roofline_subject(summary, *ceilings);
  REQUIRE(subject);
  CHECK_FALSE(subject->timed);
  CHECK_FALSE(subject->dram_measured);
  CHECK(subject->work.dram_bytes == 2 * kBytes);
  double most = 0;
  for (const Ceiling& ceiling : best_documented(ceilings->stated, ceilings->measured)) {
    most = std::max(most, share_of(ceiling, subject->work, subject->seconds).value_or(0));
  }
  CHECK(most == doctest::Approx(1));  // it touches the ceiling that limits it, and passes none
}

TEST_CASE("a kernel that multiplies on CUDA cores stands under their peak, whatever its element type") {
  using enum MathUnit;
  for (const auto& [unit, peak] :
       {std::pair(mma_sync, "fp16 peak"), {wgmma, "fp16 peak"}, {cuda_cores, "fp32 peak"}}) {
    RunEntry run = half_precision_run();
    run.math_unit = unit;
    for (PassRecord& pass : run.passes) pass.simulated.reset();
    RunRecord record = record_of({run});
    record.machine.name = "NVIDIA H200";
    const std::vector<RunRecord> records = {record};
    const auto ceilings = run_ceilings(summarize(records).front());
    REQUIRE(ceilings);
    CHECK(find(ceilings->stated, CeilingKind::peak)->name == peak);
  }
}

TEST_CASE("an older record tells what multiplies by its instructions, or the run has no roofline") {
  const auto unit_of = [](double flop_an_instruction, ElementType dtype = ElementType::fp16) {
    RunEntry run = run_of("gpu:any");
    run.problem.dtype = dtype;
    for (PassRecord& pass : run.passes) {
      pass.executed_flops = 1'000'000;
      if (flop_an_instruction > 0) pass.counters["smsp__inst_executed.sum"] = 1e6 / flop_an_instruction;
    }
    const std::vector<RunRecord> records = {record_of({run})};
    const std::vector<RunSummary> runs = summarize(records);
    CHECK(roofline_section(runs).has_value() == runs.front().on_cuda_cores.has_value());
    return runs.front().on_cuda_cores;
  };
  CHECK(unit_of(50) == true);    // a multiply-add of a warp is 64
  CHECK(unit_of(250) == false);  // of packed halves 128
  CHECK_FALSE(unit_of(100));
  CHECK_FALSE(unit_of(0));
  CHECK(unit_of(0, ElementType::fp32) == true);
}

TEST_CASE("a run on an unknown machine has no roofline") {
  RunEntry run = half_precision_run();
  for (PassRecord& pass : run.passes) pass.simulated.reset();
  RunRecord record = record_of({run});
  record.machine.name = "A device that nobody knows";
  const std::vector<RunRecord> records = {record};
  CHECK_FALSE(run_ceilings(summarize(records).front()));
}

}  // namespace tilescope
