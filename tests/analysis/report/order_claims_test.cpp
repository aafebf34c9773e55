// SPDX-License-Identifier: Apache-2.0
// What the order alone is worth, and what attention is worth in a training step: rules and numbers.
#include <doctest/doctest.h>

#include <cmath>

#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;

struct Timed {
  const char* kernel;
  Direction direction;
  double seconds;               // 0: not timed
  std::int64_t dram_bytes = 0;  // 0: not counted
  double noise = 0;
};

AttentionProblem gpt2_medium() {
  return {.batch = 64,
          .heads = 16,
          .heads_kv = 16,
          .seqlen_q = 1024,
          .seqlen_k = 1024,
          .head_dim = 64,
          .dtype = ElementType::fp16};
}

RunEntry timed_run(const Timed& timed) {
  RunEntry run;
  run.problem = gpt2_medium();
  run.kernel = timed.kernel;
  PassRecord pass;
  pass.name = "all";
  pass.direction = timed.direction;
  pass.flops = pass.executed_flops = 1'000'000;
  if (timed.dram_bytes > 0) pass.measured = MeasuredBytes{1, 1, timed.dram_bytes, 0};
  if (timed.seconds > 0) {
    pass.time = TimeRecord{timed.seconds, timed.seconds, timed.noise, {}};
    pass.time->samples = 9;
  }
  run.passes = {pass};
  return run;
}

RunRecord record_of(const std::vector<Timed>& all) {
  std::vector<RunEntry> runs;
  for (const Timed& timed : all) runs.push_back(timed_run(timed));
  RunRecord record = fixed_record(std::move(runs));
  record.machine.name = "NVIDIA H200";
  return record;
}

Judgement verdict_on(Judgement (*judge)(const Evidence&), const std::vector<RunRecord>& records) {
  Evidence evidence;
  evidence.on_device = summarize(records);
  return judge(evidence);
}

/// Times and bytes of both orders forward.
std::vector<RunRecord> orders(double standard_seconds, std::int64_t standard_bytes) {
  constexpr Direction kForward = Direction::forward;
  return {
      record_of({{"gpu:standard-mma", kForward, standard_seconds}, {"gpu:flash2-mma", kForward, 1e-3}}),
      record_of({{"gpu:standard-mma", kForward, 0, standard_bytes}, {"gpu:flash2-mma", kForward, 0, 1000}})};
}

TEST_CASE("the order alone: less time and fewer bytes, one of them, neither, or not counted") {
  CHECK(verdict_on(order_alone, orders(3e-3, 9000)).verdict == Verdict::holds);
  CHECK(verdict_on(order_alone, orders(3e-3, 900)).verdict == Verdict::in_part);
  CHECK(verdict_on(order_alone, orders(0.9e-3, 900)).verdict == Verdict::fails);
  CHECK(contains(verdict_on(order_alone, orders(3e-3, 9000)).sentence,
                 "3.00 times less time, 9.00 times fewer DRAM"));
  std::vector<RunRecord> times_alone = orders(3e-3, 9000);
  times_alone.resize(1);
  CHECK(verdict_on(order_alone, times_alone).verdict == Verdict::not_tested);
  // Numbers of another device and kernel stay what they are.
  CHECK(verdict_on(flash2_over_standard, orders(6.5e-3, 9000)).verdict == Verdict::not_comparable);
}

TEST_CASE("where samples were not kept, their number and deviation make the interval") {
  const std::vector<RunRecord> records = {record_of({{"gpu:standard-mma", Direction::forward, 3e-3, 0, 0.03},
                                                     {"gpu:flash2-mma", Direction::forward, 1e-3, 0, 0.03}})};
  const std::vector<RunSummary> runs = summarize(records);
  REQUIRE(runs.size() == 2);
  const double error = 1.2533 * 0.03 / 3;  // of a median, of nine samples
  CHECK(median_error(runs[0]) == doctest::Approx(error).epsilon(1e-3));
  const TimedPair pair{&runs[1], &runs[0]};
  const RateRatio ratio = rate_ratio(std::span(&pair, 1));
  CHECK(ratio.by_medians == doctest::Approx(3));
  CHECK(ratio.high == doctest::Approx(3 * std::exp(1.96 * error * std::sqrt(2))).epsilon(1e-3));
  CHECK(ratio.low == doctest::Approx(9 / ratio.high));
  const TimedPair pairs[] = {pair, pair, pair, pair};
  CHECK(std::log(rate_ratio(pairs).high / 3) == doctest::Approx(std::log(ratio.high / 3) / 2).epsilon(1e-3));
  CHECK(contains(ratios_text({pair}), "3.00 (2."));
  // A difference that samples leave open is none.
  std::vector<RunRecord> close = orders(1.01e-3, 9000);
  for (RunEntry& run : close[0].runs) run.passes[0].time->noise = 0.03;
  CHECK(verdict_on(order_alone, close).verdict == Verdict::in_part);
}

TEST_CASE("a training step with attention fused and not: time, memory and bytes of one model") {
  const auto steps = [](double unfused, std::int64_t peak, std::int64_t bytes) {
    RunRecord record =
        record_of({{"GPT-2 small, a training step, attention unfused", Direction::backward, unfused, bytes},
                   {"GPT-2 small, a training step, attention fused", Direction::backward, 0.1, 100}});
    record.runs[0].device_bytes = {{"backward", peak}};
    record.runs[1].device_bytes = {{"backward", 1000}};
    return std::vector<RunRecord>{record};
  };
  CHECK(verdict_on(training_gains, steps(0.2, 2000, 300)).verdict == Verdict::holds);
  CHECK(verdict_on(training_gains, steps(0.1, 2000, 300)).verdict == Verdict::in_part);
  CHECK(verdict_on(training_gains, steps(0.05, 900, 90)).verdict == Verdict::fails);
  const Judgement time = verdict_on(training_time, steps(0.3, 2000, 300));
  CHECK(time.verdict == Verdict::not_comparable);  // one H200, single steps
  CHECK(contains(time.sentence, "3.00 times"));
  CHECK(contains(time.sentence, "2.00 times less memory"));
}

}  // namespace
}  // namespace tilescope
