// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: results as exact as one kernel's, bytes as counted, faults named, and never a hang.
#include "distributed/execution/run_on_ranks.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "distributed/execution/cpu_rank.hpp"
#include "distributed/execution/rank_failure.hpp"
#include "tests/distributed/schedules.hpp"

namespace tilescope {
namespace {

using testing::distributed_cases;
using testing::DistributedCase;
using testing::kTile;
using testing::same_bits;
using enum TensorName;

TEST_CASE(
    "every schedule passes the judge at 1, 2, 3, 4 and 8 ranks, and exchanges what the closed form says") {
  for (const DistributedCase& c : distributed_cases()) {
    INFO(describe(c));
    Reference reference(c.problem, InputKind::normal, Direction::backward);
    const RankVerdict result =
        judge_on_ranks(reference, Direction::backward, c.options, RankOptions{.tile = kTile});
    for (const TensorVerdict& tensor : result.verdict.tensors) {
      CAPTURE(to_string(tensor.tensor));
      CAPTURE(tensor.share);
      CHECK(tensor.passed);
    }
    CHECK(result.forward == link_closed_form(c.problem, Direction::forward, c.options));
    CHECK(result.backward == link_closed_form(c.problem, Direction::backward, c.options));
  }
}

TEST_CASE("other inputs and element types pass as well") {
  for (const InputKind kind : kInputKinds) {
    for (const ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
      for (const LinkSchedule schedule : {LinkSchedule::zigzag, LinkSchedule::striped}) {
        AttentionProblem problem{
            .heads = 2, .seqlen_q = 77, .seqlen_k = 77, .head_dim = 24, .dtype = dtype, .causal = true};
        INFO(to_string(kind), " ", describe(DistributedCase{problem, {schedule, 4}}));
        Reference reference(problem, kind, Direction::backward);
        const RankVerdict result =
            judge_on_ranks(reference, Direction::backward, {schedule, 4}, RankOptions{.tile = kTile});
        for (const TensorVerdict& tensor : result.verdict.tensors) {
          CAPTURE(to_string(tensor.tensor));
          CAPTURE(tensor.share);
          CHECK(tensor.passed);
        }
      }
    }
  }
}

TEST_CASE("errors do not grow with the number of ranks") {
  for (const ElementType dtype : {ElementType::fp32, ElementType::bf16}) {
    AttentionProblem problem{
        .heads = 2, .seqlen_q = 512, .seqlen_k = 512, .head_dim = 32, .dtype = dtype, .causal = true};
    Reference reference(problem, InputKind::normal, Direction::backward);
    const auto rmse = [&](int ranks) {
      std::map<TensorName, double> by_tensor;
      const RankVerdict result = judge_on_ranks(reference, Direction::backward, {LinkSchedule::zigzag, ranks},
                                                RankOptions{.tile = kTile});
      for (const TensorVerdict& tensor : result.verdict.tensors) by_tensor[tensor.tensor] = tensor.error.rmse;
      return by_tensor;
    };
    const auto alone = rmse(1);
    for (const auto& shared : rmse(16)) {
      CAPTURE(to_string(shared.first));
      CHECK(shared.second <= 1.5 * alone.at(shared.first));
    }
  }
}

TEST_CASE("an all-gather and Ulysses give the bits of one rank, every schedule gives its own again") {
  AttentionProblem problem{
      .heads = 4, .heads_kv = 4, .seqlen_q = 90, .seqlen_k = 90, .head_dim = 32, .causal = true};
  Reference reference(problem, InputKind::normal, Direction::backward);
  const auto outputs = [&](LinkSchedule schedule, int ranks) {
    judge_on_ranks(reference, Direction::backward, {schedule, ranks}, RankOptions{.tile = kTile});
    return reference.take_outputs();
  };
  const TensorSet alone = outputs(LinkSchedule::ring, 1);
  const TensorSet gathered = outputs(LinkSchedule::all_gather, 4),
                  by_heads = outputs(LinkSchedule::ulysses, 4);
  for (const TensorName name : {out, lse}) CHECK(same_bits(alone[name], gathered[name]));
  for (const TensorName name : {out, lse, dq, dk, dv}) CHECK(same_bits(alone[name], by_heads[name]));
  for (const LinkSchedule schedule : kLinkSchedules) {
    const TensorSet once = outputs(schedule, 4), again = outputs(schedule, 4);
    for (const TensorName name : {out, lse, dq, dk, dv}) CHECK(same_bits(once[name], again[name]));
  }
}

TEST_CASE("merging is stable where scores are huge, equal or absent") {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const auto merged = [](float out_a, float lse_a, float out_b, float lse_b) {
    merge_partial(&out_a, &lse_a, &out_b, lse_b, 1);
    return std::pair(out_a, lse_a);
  };
  CHECK(merged(1, 0, 3, 0) == std::pair(2.0f, std::log(2.0f)));
  CHECK(merged(1, 1000, 3, -1000) == std::pair(1.0f, 1000.0f));
  CHECK(merged(1, -1000, 3, 1000) == std::pair(3.0f, 1000.0f));
  CHECK(merged(0, kNothing, 3, 5) == std::pair(3.0f, 5.0f));
  CHECK(merged(1, 5, 0, kNothing) == std::pair(1.0f, 5.0f));
  CHECK(merged(0, kNothing, 0, kNothing) == std::pair(0.0f, kNothing));
}

const AttentionProblem kSmall{
    .heads = 4, .heads_kv = 4, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 16, .causal = true};

TensorSet inputs(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::forward);
  return tensors;
}

/// Whether the outputs of a forward program are right.
bool passes(const DistributedProgram& program, Reference& reference) {
  reference.run(
      [&](Direction, TensorSet& tensors) {
        run_on_ranks(program, tensors, {.tile = kTile, .time_limit = std::chrono::seconds(20)});
      },
      Direction::forward);
  return reference.judge(Direction::forward).passed();
}

TEST_CASE("a program that lacks an operation, or doubles or moves a launch, is seen") {
  Reference reference(kSmall, InputKind::normal, Direction::forward);
  for (const LinkSchedule schedule : kLinkSchedules) {
    const DistributedProgram right = build_distributed(kSmall, Direction::forward, {schedule, 4});
    REQUIRE(passes(right, reference));
    // Each in turn is left out. (`waits` are not looked at here.)
    for (std::size_t i = 0; i < right.operations.size(); ++i) {
      DistributedProgram wrong = right;
      wrong.operations.erase(wrong.operations.begin() + static_cast<std::ptrdiff_t>(i));
      CAPTURE(to_string(schedule));
      CAPTURE(i);
      // Under a mask some ranks get keys that they do not look at; without one, below, all are needed.
      const Move* const move = std::get_if<Move>(&right.operations[i].what);
      if (move != nullptr && move->kind == MoveKind::copy) continue;
      CHECK(!passes(wrong, reference));
    }
    for (std::size_t i = 0; i < right.operations.size(); ++i) {
      if (!std::holds_alternative<Attend>(right.operations[i].what)) continue;
      DistributedProgram twice = right;
      twice.operations.insert(twice.operations.begin() + static_cast<std::ptrdiff_t>(i), right.operations[i]);
      DistributedProgram moved = right;
      Slice& slice = std::get<Attend>(moved.operations[i].what).slice;
      if (slice.diagonal) slice.diagonal = *slice.diagonal + 1;
      CAPTURE(to_string(schedule));
      CAPTURE(i);
      // A launch that sees all the keys of its rows may be merged twice: the weights stay the same.
      if (slice.diagonal) CHECK(!passes(moved, reference));
      if (schedule == LinkSchedule::striped && right.operations[i].step > 0) CHECK(!passes(twice, reference));
    }
  }
}

TEST_CASE("without a mask every transfer is needed") {
  AttentionProblem problem = kSmall;
  problem.causal = false;
  Reference reference(problem, InputKind::normal, Direction::forward);
  for (const LinkSchedule schedule : kLinkSchedules) {
    const DistributedProgram right = build_distributed(problem, Direction::forward, {schedule, 4});
    for (std::size_t i = 0; i < right.operations.size(); ++i) {
      DistributedProgram wrong = right;
      wrong.operations.erase(wrong.operations.begin() + static_cast<std::ptrdiff_t>(i));
      CAPTURE(to_string(schedule));
      CAPTURE(i);
      CHECK(!passes(wrong, reference));
    }
  }
}

/// The failure of a run with `before`.
template <typename Before>
std::tuple<int, int, std::string> failure_of(Before&& before) {
  TensorSet tensors = inputs(kSmall);
  const auto program = build_distributed(kSmall, Direction::forward, {LinkSchedule::zigzag, 4});
  try {
    run_on_ranks(program, tensors,
                 {.tile = kTile, .time_limit = std::chrono::milliseconds(200), .before = before});
  } catch (const RankFailure& failure) {
    return {failure.rank(), failure.step(), failure.what()};
  }
  return {-1, -1, "nothing failed"};
}

TEST_CASE("a rank that throws ends all of them, and is named") {
  const auto program = build_distributed(kSmall, Direction::forward, {LinkSchedule::zigzag, 4});
  for (int rank = 0; rank < 4; ++rank) {
    const auto [failed, step, what] = failure_of([&](int who, int operation) {
      const bool second = program.operations[static_cast<std::size_t>(operation)].step == 2;
      if (who == rank && second) throw std::runtime_error("the device is gone");
    });
    CHECK(failed == rank);
    CHECK(step == 2);
    CHECK(what == "rank " + std::to_string(rank) + " failed in step 2: the device is gone");
  }
}

TEST_CASE("a rank that does nothing any more is not waited for without limit, and is named") {
  const auto [failed, step, what] = failure_of([](int who, int operation) {
    if (who == 2 && operation > 6) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  CHECK(failed == 2);
  CHECK(what.find("did nothing for 200 ms while rank ") != std::string::npos);
}

TEST_CASE("waiting for a message ends when it cannot come, what a kernel refuses stays a refusal") {
  Exchange exchange(2, std::chrono::milliseconds(50));
  Exchange::Message message;
  CHECK(exchange.receive(0, 7, message) == Exchange::Outcome::nobody_moves);
  CHECK(exchange.running_rank() == 1);  // rank 0 waits
  exchange.send(1, 7, Exchange::Message(12));
  CHECK(exchange.receive(0, 7, message) == Exchange::Outcome::arrived);
  CHECK(exchange.link_bytes() == std::vector<LinkBytes>{{0, 12}, {12, 0}});
  CHECK(exchange.running_rank() == 0);
  exchange.end(0);
  exchange.end(1);
  CHECK(exchange.running_rank() == -1);
  exchange.fail();
  CHECK(exchange.receive(1, 8, message) == Exchange::Outcome::another_failed);
  TensorSet tensors = inputs(kSmall);
  RankOptions standard;
  standard.kernel = &standard_kernel();
  const auto program = build_distributed(kSmall, Direction::forward, {LinkSchedule::ring, 2});
  CHECK_THROWS_AS(run_on_ranks(program, tensors, standard), BadInput);
}

}  // namespace
}  // namespace tilescope
