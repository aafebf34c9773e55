// SPDX-License-Identifier: Apache-2.0
// Problems drawn by dice, and what a kernel gives on them by stratum.
#include "analysis/studies/drawn_problems.hpp"

#include <doctest/doctest.h>

#include <set>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

RunEntry timed(const AttentionProblem& problem, const char* kernel, double median_s) {
  PassRecord pass;
  pass.direction = Direction::forward;
  pass.time.emplace().median_s = median_s;
  RunEntry run;
  run.problem = problem;
  run.kernel = kernel;
  if (run.kernel.starts_with("gpu:")) run.algorithm = Algorithm::flash2;  // peers have none
  run.passes = {pass};
  return run;
}

}  // namespace

TEST_CASE("a seed draws the same problems every time, the first of many as of few, from every stratum") {
  const std::vector<AttentionProblem> problems = drawn_problems(7, 200);
  const std::vector<AttentionProblem> few = drawn_problems(7, 20);
  CHECK(std::equal(few.begin(), few.end(), problems.begin()));
  CHECK(drawn_problems(8, 20) != few);
  std::set<std::int64_t> head_dims, groups;
  int ragged = 0, causal = 0, windows = 0, crossing = 0, small = 0;
  for (const AttentionProblem& p : problems) {
    head_dims.insert(p.head_dim);
    groups.insert(p.group_size());
    ragged += p.seqlen_k % 64 != 0;
    causal += p.causal;
    windows += p.windowed();
    crossing += p.seqlen_q < p.seqlen_k;
    small += p.batch * p.heads * ((p.seqlen_q + 127) / 128) < 132;
    CHECK(p.seqlen_k >= 128);
    CHECK(p.seqlen_k <= 48 << 10);
  }
  CHECK(head_dims == std::set<std::int64_t>{64, 72, 80, 96, 112, 128, 160, 192, 224, 256});
  CHECK(groups == std::set<std::int64_t>{1, 2, 4, 7, 8});
  CHECK(ragged > 140);
  CHECK(causal > 60);
  CHECK(windows > 10);
  CHECK(crossing > 10);
  CHECK(small > 40);
  CHECK(small < 160);
}

TEST_CASE("drawn problems in fp8 are ones that gpu:flash3 takes, at each head dimension, causal and full") {
  const Kernel& flash3 = find_kernel("gpu:flash3");
  const std::vector<AttentionProblem> problems = drawn_fp8_problems(7, 120);
  CHECK(drawn_fp8_problems(7, 120) == problems);
  std::set<std::pair<std::int64_t, bool>> kinds;
  for (const AttentionProblem& p : problems) {
    CAPTURE(describe(p));
    CHECK(p.dtype == ElementType::fp8e4m3);
    CHECK(!p.windowed());
    for (const Fp8Sums sums : flash3.fp8_sums) {
      ProgramOptions options = flash3.default_options(p);
      options.fp8_sums = sums;
      CHECK(!flash3.refusal(p, Direction::forward, options));
    }
    kinds.emplace(p.head_dim, p.causal);
  }
  CHECK(kinds.size() == 6);
}

TEST_CASE("drawn batches to decode are ones that gpu:decode takes, of every length, size and group") {
  const Kernel& decode = find_kernel("gpu:decode");
  const std::vector<AttentionProblem> problems = drawn_decode_problems(7, 200);
  CHECK(drawn_decode_problems(7, 200) == problems);
  std::set<std::int64_t> head_dims, groups, pages;
  int single = 0, split = 0, mixed = 0, drafted = 0, few_keys = 0, many_keys = 0;
  for (const AttentionProblem& p : problems) {
    CAPTURE(describe(p));
    const ProgramOptions options = decode.default_options(p);
    REQUIRE(!decode.refusal(p, Direction::forward, options));
    head_dims.insert(p.head_dim);
    groups.insert(p.group_size());
    pages.insert(p.page_size);
    single += p.batch == 1;
    split += decode.programs(Direction::forward, p, options).size() == 2;
    mixed += !p.key_lengths.empty();
    drafted += p.seqlen_q > 1;
    few_keys += p.seqlen_k < 1000;
    many_keys += p.seqlen_k > 64 << 10;
    CHECK(p.batch <= 256);
    CHECK(4 * p.batch * p.heads_kv * p.seqlen_k * p.head_dim <= 8'000'000'000);
  }
  CHECK(head_dims == std::set<std::int64_t>{64, 128});
  CHECK(groups == std::set<std::int64_t>{1, 2, 4, 5, 8, 16});
  CHECK(pages == std::set<std::int64_t>{0, 16, 32, 64, 128, 256});
  for (const int count : {single, mixed, drafted, few_keys, many_keys}) CHECK(count > 10);
  CHECK(split > 50);
  CHECK(split < 150);
}

TEST_CASE(
    "strata: geometric means over the best peer, the worst first behind all, without runs that no peer has") {
  const AttentionProblem wide{.seqlen_q = 300, .seqlen_k = 300, .head_dim = 96, .dtype = ElementType::fp16};
  AttentionProblem narrow = wide, alone = wide;
  narrow.head_dim = 64;
  alone.head_dim = 80;
  const std::vector<Stratum> strata =
      strata_of({timed(wide, "gpu:own", 2.0), timed(wide, "a:peer", 3.0), timed(wide, "b:peer", 1.0),
                 timed(narrow, "gpu:own", 1.0), timed(narrow, "a:peer", 2.0), timed(alone, "gpu:own", 1.0),
                 timed(wide, "gpu:other", 0.1)},
                "gpu:own");
  REQUIRE(strata.size() >= 3);
  CHECK(strata[0].name == "all");
  CHECK(strata[0].problems == 2);
  CHECK(strata[0].mean == doctest::Approx(1.0));  // of 0.5 and 2
  CHECK(strata[0].worst == doctest::Approx(0.5));
  CHECK(strata[1].name == "head_dim 96");
  CHECK(strata[1].worst_problem.find("D96") != std::string::npos);
  CHECK(strata.back().mean == doctest::Approx(2.0));
}

}  // namespace tilescope
