// SPDX-License-Identifier: Apache-2.0
// The rules that give verdicts on the papers' claims.
#include "analysis/report/claims/claim.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "analysis/report/sections/bytes/dram_growth.hpp"
#include "analysis/report/sections/bytes/extra_memory.hpp"
#include "analysis/report/sections/bytes/paper_scaling.hpp"
#include "analysis/report/sections/checks/paper_errors.hpp"
#include "analysis/report/sections/speed/rate_ratios.hpp"
#include "analysis/studies/error_study.hpp"
#include "analysis/studies/paper_studies.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;

/// The record that a study would write.
RunRecord record_of_study(std::string_view study) {
  const Machine machine = load_machine("h200");
  std::vector<RunEntry> runs;
  for (const StudyTask& task : find_study(study).plan(machine)) {
    for (RunEntry& run : task.run()) runs.push_back(std::move(run));
  }
  RunRecord record = fixed_record(std::move(runs));
  record.argv = {"tilescope", "study", std::string(study)};
  return record;
}

/// The verdict on the claim of that place in `claims`, the nth of those there.
Judgement judged(std::span<const Claim> claims, std::string_view place, const Evidence& evidence,
                 int nth = 0) {
  for (const Claim& claim : claims) {
    if (claim.place == place && nth-- == 0) return claim.judge ? claim.judge(evidence) : Judgement{};
  }
  FAIL("no such claim");
  return {};
}

TEST_CASE("cases: all, some, none, and nothing where there is no case") {
  CHECK(verdict_of_cases(3, 3) == Verdict::holds);
  CHECK(verdict_of_cases(2, 3) == Verdict::in_part);
  CHECK(verdict_of_cases(0, 3) == Verdict::fails);
  CHECK(verdict_of_cases(0, 0) == Verdict::not_tested);
}

TEST_CASE("growth: bounded within a factor of two, or not") {
  CHECK(verdict_of_constant({20, 28, 9}) == Verdict::holds);
  CHECK(verdict_of_constant({20, 40, 9}) == Verdict::holds);
  CHECK(verdict_of_constant({20, 40.1, 9}) == Verdict::fails);
  CHECK(verdict_of_constant({HUGE_VAL, 0, 0}) == Verdict::not_tested);
}

TEST_CASE("numbers: those of another device, kernel or boundary do not compare, whatever they are") {
  const Circumstances a100{"A100", "theirs", "DRAM"};
  CHECK(judge_number(a100, a100, 9, 8.9, 0.05, "").verdict == Verdict::holds);
  CHECK(judge_number(a100, a100, 9, 8.0, 0.05, "").verdict == Verdict::fails);
  for (const Circumstances& here :
       {Circumstances{"H200", "theirs", "DRAM"}, {"A100", "ours", "DRAM"}, {"A100", "theirs", "SM<->L2"}}) {
    const Judgement judgement = judge_number(a100, here, 9, 9, 0.05, "found");
    CHECK(judgement.verdict == Verdict::not_comparable);
    CHECK(contains(judgement.sentence, " there, "));
    CHECK(contains(judgement.sentence, "found"));
  }
}

TEST_CASE("without records nothing is claimed: every verdict that rests on data is \"not tested\"") {
  for (const std::span<const Claim> claims :
       {flash1_claims(), flash2_claims(), flash3_claims(), bound_claims(), own_claims()}) {
    for (const Claim& claim : claims) {
      CAPTURE(claim.place);
      CAPTURE(claim.text);
      CHECK(*claim.evidence != 0);
      if (claim.judge) CHECK(claim.judge({}).verdict == Verdict::not_tested);
    }
  }
  const Section matrix = claims_matrix({});
  CHECK(matrix.name == "claims");
  CHECK(std::get<Table>(matrix.blocks.back()).rows.size() > 40);
}

TEST_CASE(
    "the constants of Theorems 2 and 5: FlashAttention's are bounded, FlashAttention-2's forward is not") {
  Evidence evidence;
  evidence.records = {record_of_study(kConstantsStudy)};
  evidence.constants = summarize(evidence.records);
  CHECK(judged(flash1_claims(), "Theorem 2", evidence, 1).verdict == Verdict::holds);
  CHECK(judged(flash1_claims(), "Theorem 5", evidence, 1).verdict == Verdict::holds);
  // Below M = d^2 a product needs more accesses than the scores are many.
  CHECK(judged(flash1_claims(), "Theorem 2", evidence).verdict == Verdict::in_part);
  CHECK(judged(own_claims(), "Constants", evidence).verdict == Verdict::holds);
  CHECK(judged(bound_claims(), "Saha and Ye, Theorem 3.1", evidence).verdict == Verdict::holds);
  // Another constant for half of the points, and the verdict falls.
  for (RunEntry& run : evidence.records[0].runs) {
    if (run.algorithm != Algorithm::flash1 || run.problem.head_dim != 64) continue;
    for (PassRecord& pass : run.passes) pass.closed_form->sm_l2_read_bytes *= 3;
  }
  evidence.constants = summarize(evidence.records);
  CHECK(judged(flash1_claims(), "Theorem 2", evidence, 1).verdict == Verdict::fails);
}

TEST_CASE("a point's constant is what the paper's algorithm has, but for the width of sums") {
  const std::vector<RunRecord> records = {record_of_study(kConstantsStudy)};
  const std::vector<RunSummary> runs = summarize(records);
  const std::vector<TheoremPoint> points = theorem_points(runs);
  REQUIRE(points.size() == runs.size());
  for (const TheoremPoint& point : points) {
    CHECK(point.within_hypotheses() ==
          (point.head_dim <= point.fast && point.fast <= point.seqlen * point.head_dim));
    if (point.run->algorithm == Algorithm::standard || point.run->algorithm == Algorithm::flash1)
      CHECK(*point.as_printed <= point.accesses);
  }
  const Range c = range_of_points(
      points, Algorithm::flash1, Direction::forward,
      [](const TheoremPoint& point) { return point.seqlen == 16384 && point.head_dim == 64; },
      [](const TheoremPoint& point) { return point.of_flash(); });
  CHECK(c.count == 7);
  CHECK(c.low == doctest::Approx(20.5).epsilon(0.01));
}

TEST_CASE("sparsity and parallelism are judged by their studies") {
  Evidence evidence;
  evidence.records = {record_of_study(kSparsityStudy)};
  evidence.sparsity = summarize(evidence.records);
  CHECK(judged(flash1_claims(), "Proposition 4", evidence).verdict == Verdict::holds);
  for (const SparsityPoint& point : sparsity_points(evidence.sparsity)) {
    CHECK(point.share > 0);
    CHECK(point.share <= 1);
  }
  // As many bytes whatever the window: the constant grows as one over the share.
  for (RunEntry& run : evidence.records[0].runs) {
    for (PassRecord& pass : run.passes) pass.closed_form->sm_l2_read_bytes = std::int64_t{1} << 30;
  }
  evidence.sparsity = summarize(evidence.records);
  CHECK(judged(flash1_claims(), "Proposition 4", evidence).verdict == Verdict::fails);

  const std::vector<RunRecord> kept = {record_of_study(kParallelismStudy)};
  evidence.parallelism = summarize(kept);
  CHECK(judged(flash2_claims(), "Section 3.2", evidence).verdict == Verdict::holds);
  const std::vector<ParallelismPoint> points = parallelism_points(evidence.parallelism);
  const ParallelismPoint* one = find_point(points, Algorithm::flash1, Direction::forward, 1);
  REQUIRE(one != nullptr);
  CHECK(one->ctas == 1);
  CHECK(one->busy == doctest::Approx(1.0 / 132));
  CHECK(find_point(points, Algorithm::flash2, Direction::forward, 1)->ctas == 64);
}

TEST_CASE("two lines that meet are found where they meet") {
  std::vector<std::pair<double, double>> points;
  for (double x = 1024; x <= 262144; x *= 2)
    points.emplace_back(x, x <= 16384 ? x : 16384 * (x / 16384) * (x / 16384));
  const auto line = fit_broken_line(points);
  REQUIRE(line);
  CHECK(line->below == doctest::Approx(1).epsilon(0.02));
  CHECK(line->above == doctest::Approx(2).epsilon(0.02));
  CHECK(line->at == doctest::Approx(16384).epsilon(0.1));
  CHECK_FALSE(fit_broken_line(std::span(points).first(4)));
}

TEST_CASE("a printed error is covered by draws from the least to the largest, to its last digit") {
  const MethodErrors errors{ElementType::fp16, "m", {1.80e-4, 1.84e-4}};
  CHECK(errors.covers(1.8e-4));
  CHECK(errors.covers(1.9e-4) == false);
  CHECK(errors.covers(1.75e-4));
  CHECK(errors.mean() == doctest::Approx(1.82e-4));
  CHECK(errors.deviation() == doctest::Approx(2.83e-6).epsilon(0.01));
  // Of the draws that both have, whatever their order.
  const MethodErrors drawn{ElementType::fp16, "m", {1.80e-4, 1.84e-4}, {1, 2}};
  const MethodErrors ratios = error_ratios(drawn, {ElementType::fp16, "n", {0.92e-4, 7, 0.6e-4}, {2, 3, 1}});
  CHECK(ratios.rmse == std::vector{1.80e-4 / 0.6e-4, 1.84e-4 / 0.92e-4});
  CHECK(ratios.seeds == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE(
    "the baseline that rounds twice errs more than standard attention, and incoherence keeps products") {
  AttentionProblem problem;
  problem.seqlen_q = problem.seqlen_k = 256;
  problem.head_dim = 64;
  problem.seed = 3;
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  const RunRecord record = fixed_record(errors_of_draw(problem, kernels));
  const std::vector<MethodErrors> errors = method_errors({record});
  const auto rmse = [&errors](ElementType type, const char* method) {
    const MethodErrors* found = find_method(errors, type, method);
    REQUIRE_MESSAGE(found != nullptr, method);
    return found->mean();
  };
  const double twice = rmse(ElementType::fp16, "standard, rounded twice");
  CHECK(twice > rmse(ElementType::fp16, "cpu:standard"));
  CHECK(rmse(ElementType::fp16, "cpu:standard") > rmse(ElementType::fp16, "cpu:flash2"));
  // Spread outliers and then quantised, fp8 errs less; a transform that changed the products would err more.
  CHECK(rmse(ElementType::fp8e4m3, "cpu:flash2, a scale a tensor, incoherent") <
        rmse(ElementType::fp8e4m3, "cpu:flash2, a scale a tensor"));
  CHECK(rmse(ElementType::fp8e4m3, "cpu:flash2, block scales, incoherent") < 1);
}

TEST_CASE("ratios of rates: medians, minima, and an interval that resampling gives") {
  const auto run_with = [](std::vector<double> samples, double median) {
    RunEntry run = testing::simulated(Algorithm::flash2, 64, {16, 16});
    run.passes.resize(1);
    run.passes[0].time = TimeRecord{median, samples.empty() ? median : samples.front(), 0, samples};
    return run;
  };
  const std::vector<RunRecord> records = {
      fixed_record({run_with({1.0, 1.0, 1.2, 1.3, 1.4}, 1.2), run_with({2.0, 2.2, 2.4, 2.6, 2.8}, 2.4)}),
      fixed_record({run_with({}, 1.0), run_with({}, 3.0)})};
  const std::vector<RunSummary> runs = summarize(records);
  REQUIRE(runs.size() == 4);
  const TimedPair sampled{&runs[0], &runs[1]};
  const RateRatio ratio = rate_ratio(std::span(&sampled, 1));
  CHECK(ratio.by_medians == doctest::Approx(2));
  CHECK(ratio.by_minima == doctest::Approx(2));
  CHECK(ratio.low < 2);
  CHECK(ratio.high > 2);
  CHECK(rate_ratio(std::span(&sampled, 1)).low == ratio.low);  // the same each time
  const TimedPair bare{&runs[2], &runs[3]};
  CHECK(rate_ratio(std::span(&bare, 1)).text() == "3.00");
}

TEST_CASE("memory beside inputs and outputs is what a sweep took less what must be there") {
  std::vector<RunEntry> runs;
  for (const std::int64_t seqlen : {65536, 131072, 262144}) {
    RunEntry run = testing::simulated(Algorithm::flash1, 64, {16, 16});
    run.problem.seqlen_q = run.problem.seqlen_k = seqlen;
    const std::vector<RunRecord> one = {fixed_record({run})};
    for (const RunSummary& summary : summarize(one)) {
      const std::string direction(to_string(summary.direction));
      run.device_bytes[direction] = summary.compulsory.total() + seqlen * seqlen / 64;
    }
    runs.push_back(std::move(run));
  }
  const std::vector<RunRecord> records = {fixed_record(runs)};
  const std::vector<RunSummary> summaries = summarize(records);
  const std::vector<ExtraMemory> found = extra_memory(summaries);
  REQUIRE(found.size() == 2);
  for (const ExtraMemory& memory : found) CHECK(*memory.exponent == doctest::Approx(2));
  Evidence evidence;
  evidence.runs = summaries;
  CHECK(judged(flash1_claims(), "Theorem 1", evidence, 2).verdict == Verdict::fails);
}

}  // namespace
}  // namespace tilescope
