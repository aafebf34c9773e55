// SPDX-License-Identifier: Apache-2.0
// Links that hide behind what the ranks compute, and streams that let them.
#include <doctest/doctest.h>

#include <set>

#include "distributed/counts/rank_load.hpp"
#include "distributed/schedule/distributed_program.hpp"
#include "distributed/timeline/timeline.hpp"

namespace tilescope {
namespace {

TEST_CASE("the timeline hides the link from the predicted number of tokens on") {
  AttentionProblem problem{
      .heads = 32, .heads_kv = 8, .head_dim = 128, .dtype = ElementType::bf16, .causal = true};
  const RankRates rates{600e12, 1e18, 370e9, 0};
  CHECK(least_hidden_tokens(problem, Direction::forward, 600e12, 370e9) ==
        doctest::Approx(3243.0 / 4).epsilon(1e-3));
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const double threshold = least_hidden_tokens(problem, direction, 600e12, 370e9);
    const auto efficiency = [&](double tokens) {
      problem.seqlen_q = problem.seqlen_k = 8 * (static_cast<std::int64_t>(tokens) / 2 * 2);
      return predict_timeline(build_distributed(problem, direction, {LinkSchedule::zigzag, 8}), rates)
          .efficiency;
    };
    CHECK(efficiency(1.1 * threshold) > efficiency(0.9 * threshold));
    CHECK(efficiency(0.5 * threshold) < 0.75);
    if (direction == Direction::forward) CHECK(efficiency(1.1 * threshold) > 0.99);
  }
}

TEST_CASE("backward, the last hop of a ring's sums is hidden behind what a rank has left of its own keys") {
  const AttentionProblem problem{.heads = 16,
                                 .heads_kv = 16,
                                 .seqlen_q = 8192,
                                 .seqlen_k = 8192,
                                 .dtype = ElementType::bf16,
                                 .causal = true};
  const double alone = useful_flops(Direction::backward, problem.visible_pairs(), problem.head_dim);
  const double hop =
      2.0 * 4096 * 16 * static_cast<double>(problem.head_dim) * 4;  // bytes of dK and dV in fp32
  // A hop takes half as long as a quarter of a step; there are two steps.
  const RankRates rates{alone / 2, 1e18, hop * 2 * 8, 0};
  const auto timeline =
      predict_timeline(build_distributed(problem, Direction::backward, {LinkSchedule::zigzag, 2}), rates);
  CHECK(timeline.efficiency > 0.99);
}

/// Of 16K tokens on two GPUs whose passes over memory take no time: what the link shows, by a rate of 390
/// GB/s.
double exposed(std::int64_t heads, std::int64_t heads_kv, LinkSchedule schedule, Direction direction) {
  AttentionProblem problem{.heads = heads, .heads_kv = heads_kv, .head_dim = 128, .causal = true};
  problem.seqlen_q = problem.seqlen_k = 16384;
  problem.dtype = ElementType::bf16;
  return predict_timeline(build_distributed(problem, direction, {schedule, 2}), {700e12, 1e18, 390e9, 0})
      .exposed_seconds;
}

TEST_CASE("by groups of heads the link shows in the first and the last group alone") {
  const double of_eight_heads = 8192.0 * 8 * 2 * 128 / 390e9;  // K and V of one rank, a byte an element
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    // GPU 1 waits for all of K, and of V for the first chunk; in the end GPU 0 for all sums.
    const double keys = 0.75 * 2 * of_eight_heads, sums = 4 * of_eight_heads;
    const double gathered = keys + (direction == Direction::forward ? 0 : sums);
    CHECK(exposed(32, 8, LinkSchedule::all_gather, direction) == doctest::Approx(gathered).epsilon(1e-6));
    CHECK(exposed(32, 8, LinkSchedule::all_gather_heads, direction) ==
          doctest::Approx(gathered / 8).epsilon(1e-6));
    const double exchanged = 4 * of_eight_heads;  // half of each of Q, K, V and O, or of their gradients
    CHECK(exposed(16, 16, LinkSchedule::ulysses, direction) == doctest::Approx(exchanged).epsilon(1e-6));
    CHECK(exposed(16, 16, LinkSchedule::ulysses_heads, direction) ==
          doctest::Approx(exchanged / 8).epsilon(1e-6));
  }
}

TEST_CASE(
    "launches of each group of heads have a compute stream of their own, and forward each two steps of a "
    "ring") {
  const AttentionProblem problem{.heads = 16, .heads_kv = 16, .seqlen_q = 64, .seqlen_k = 64, .causal = true};
  const auto compute_streams = [&](LinkSchedule schedule, Direction direction) {
    std::set<int> used;
    const DistributedProgram program = build_distributed(problem, direction, {schedule, 2});
    for (const Operation& operation : program.operations) {
      if (std::holds_alternative<Attend>(operation.what)) used.insert(operation.compute_stream);
    }
    return used.size();
  };
  CHECK(compute_streams(LinkSchedule::ulysses_heads, Direction::forward) == 4);   // 1, 2, 4 and 1 heads of 8
  CHECK(compute_streams(LinkSchedule::ulysses_heads, Direction::backward) == 3);  // 1, 6 and 1
  CHECK(compute_streams(LinkSchedule::zigzag, Direction::forward) == 2);
  CHECK(compute_streams(LinkSchedule::zigzag, Direction::backward) == 1);
  CHECK(compute_streams(LinkSchedule::ulysses, Direction::backward) == 1);
}

TEST_CASE("one rank takes its work and nothing else, rings of contiguous shards wait for the last") {
  const AttentionProblem problem{
      .seqlen_q = 8192, .seqlen_k = 8192, .dtype = ElementType::bf16, .causal = true};
  const RankRates rates{1e12, 1e18, 1e15, 0};
  const auto timeline = [&](LinkSchedule schedule, int ranks) {
    return predict_timeline(build_distributed(problem, Direction::forward, {schedule, ranks}), rates);
  };
  const double alone = useful_flops(Direction::forward, problem.visible_pairs(), problem.head_dim) / 1e12;
  CHECK(timeline(LinkSchedule::ring, 1).seconds == doctest::Approx(alone));
  CHECK(timeline(LinkSchedule::zigzag, 4).seconds == doctest::Approx(alone / 4));
  CHECK(timeline(LinkSchedule::ring, 4).efficiency == doctest::Approx(4.0 / 7).epsilon(1e-2));
}

}  // namespace
}  // namespace tilescope
