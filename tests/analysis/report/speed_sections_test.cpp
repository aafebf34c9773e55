// SPDX-License-Identifier: Apache-2.0
// What `bench` timed, in a report.
#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;
using testing::section_names;

TEST_CASE("a time on the CPU stands beside the rate of a matrix product in the same run") {
  RunEntry timed;
  timed.problem = {.heads = 2, .heads_kv = 2, .seqlen_q = 64, .seqlen_k = 64, .dtype = ElementType::fp16};
  timed.kernel = "cpu:flash2";
  timed.runs_on = "cpu";
  PassRecord& pass = timed.passes.emplace_back();
  pass.name = "delta+dkdvdq+convert";
  pass.direction = Direction::backward;
  pass.choices.backward = BackwardOrder::fused;
  pass.time = TimeRecord{2e-3, 1e-3, 0.05, {2e-3}};
  const double rate = static_cast<double>(useful_flops(timed.problem, Direction::backward)) / 2e-3;
  pass.counters = {{"threads", std::int64_t{2}}, {"sgemm_flops_per_second", 2 * rate}};
  const Document speed = make_report({{fixed_record({timed})}});
  CHECK(section_names(speed) == std::set<std::string>{"speed", "records"});
  REQUIRE(speed.verdicts.size() == 1);
  CHECK(speed.verdicts[0].figures() == "of sgemm 50 %");
  const std::string markdown = to_markdown(speed, "f");
  for (const char* part : {"| flash2 fused |", "| 2 | 2 ms | 5.0 % |", "| 50.0 % |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

/// A run of `bench` on a device at that rate by the papers' count.
RunEntry device_run(const std::string& kernel, std::int64_t seqlen, double flops_per_second) {
  RunEntry run;
  run.problem = {.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = 128, .dtype = ElementType::fp16};
  run.kernel = kernel;
  PassRecord& pass = run.passes.emplace_back();
  pass.name = "forward";
  if (kernel.starts_with("gpu:")) {
    run.algorithm = Algorithm::flash2;
    run.runs_on = "gpu";
  } else {
    pass.tile = kUnknownTile;
  }
  const double seconds = static_cast<double>(paper_flops(run.problem, Direction::forward)) / flops_per_second;
  pass.time = TimeRecord{seconds, seconds, 0, {seconds}};
  return run;
}

/// So many times as long.
void take_times(RunEntry& run, double factor) {
  TimeRecord& time = *run.passes[0].time;
  time.median_s *= factor;
  time.min_s *= factor;
  for (double& sample : time.samples_s) sample *= factor;
}

TEST_CASE("rates on a device stand beside the peers' of the same record, with geometric means") {
  std::vector<RunEntry> runs;
  for (const std::int64_t seqlen : {512, 1024, 2048}) {
    runs.push_back(device_run("gpu:flash2-mma", seqlen, 300e12));
    runs.push_back(device_run("pytorch:flash2", seqlen, seqlen == 512 ? 75e12 : 300e12));
  }
  runs.push_back(device_run("pytorch:cudnn", 512, 600e12));
  RunRecord record = fixed_record(runs);
  record.machine.name = "NVIDIA H200";
  record.machine.libraries = "PyTorch 9";
  const Document document = make_report({{record}});
  CHECK(section_names(document) == std::set<std::string>{"device-speed", "device-rates", "records"});
  REQUIRE(document.verdicts.size() == 1);
  CHECK(document.verdicts[0].figures() == "forward: d = 128 0.79x");  // 0.5 and 1 and 1 of the fastest
  const std::string markdown = to_markdown(document, "f");
  for (const char* part :
       {"PyTorch 9", "3 problems", "| gpu:flash2-mma | 128 | none | 1.59 | 0.50 |",  // 4^(1/3)
        "| B1 H1 N512 D128 fp16 | 300.0 | 75.0 | 600.0 |", "| 300.0 | 300.0 | - |",
        "rate-against-seqlen-forward.svg"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }

  CHECK(contains(document.verdicts[0].sentence, "**Slower.**"));
  for (RunEntry& run : record.runs) {
    if (run.kernel == "gpu:flash2-mma") take_times(run, run.problem.seqlen_q == 512 ? 1 / 1.8 : 1 / 2.0);
  }
  const std::string uneven = make_report({{record}}).verdicts[0].sentence;
  CHECK(contains(uneven, "**Faster on the mean, not everywhere.**"));
  CHECK(contains(uneven, "On the worst problem it is 0.90x."));
  const auto verdict_if_brief_takes = [&record](double factor) {
    RunRecord changed = record;
    for (RunEntry& run : changed.runs) {
      if (run.kernel == "gpu:flash2-mma" && run.problem.seqlen_q == 512) take_times(run, factor);
    }
    return make_report({{changed}}).verdicts[0].sentence;
  };
  CHECK(contains(verdict_if_brief_takes(0.93), "**Faster on the mean, level at worst.**"));
  CHECK(contains(verdict_if_brief_takes(0.85), "**Faster.**"));
  // Faster by its medians alone: not where its fastest launches are slower.
  for (RunEntry& run : record.runs) {
    if (run.kernel == "gpu:flash2-mma") run.passes[0].time->min_s *= 3;
  }
  CHECK(contains(make_report({{record}}).verdicts[0].sentence, "**Faster or level.**"));

  RunRecord alone = fixed_record({device_run("gpu:flash2-simt", 512, 30e12)});
  alone.runs[0].problem.dtype = ElementType::fp32;
  alone.machine.name = "NVIDIA H200";
  const Document rates = make_report({{alone}});
  CHECK(section_names(rates) == std::set<std::string>{"device-rates", "records"});
  CHECK(contains(to_markdown(rates, "f"), "| 30.0 | 44.8 % |"));  // of 66.9 TFLOP/s
}

}  // namespace
}  // namespace tilescope
