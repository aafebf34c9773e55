// SPDX-License-Identifier: Apache-2.0
// Where launches leave their results on devices: nothing is read that nobody wrote, and sums are left out
// where one launch has them all.
#include "distributed/execution/accumulation_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/distributed/schedules.hpp"

namespace tilescope {
namespace {

using testing::distributed_cases;
using testing::DistributedCase;
using enum TensorName;

/// Follows a plan and notes which rows of which buffer hold something.
class Followed {
 public:
  explicit Followed(const DistributedProgram& program)
      : program_(program), plan_(plan_accumulation(program)), rows_(program.buffers.size()) {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      rows_[i].assign(static_cast<std::size_t>(program.buffers[i].rows), false);
    for (const Placement& input : program.inputs) set(input.block.buffer, input.block.rows);
    for (const std::vector<int>& buffers : {plan_.cleared, plan_.emptied}) {
      for (const int buffer : buffers) set(buffer, all(buffer));
    }
  }

  /// @return whether every row was there when it was read, and every output is there in the end
  bool right() {
    for (int i = 0; i < static_cast<int>(program_.operations.size()); ++i) {
      const Operation& operation = program_.operations[static_cast<std::size_t>(i)];
      if (const Attend* const attend = std::get_if<Attend>(&operation.what)) {
        launch(i, *attend);
      } else {
        move(i, std::get<Move>(operation.what));
      }
    }
    for (const Placement& output : program_.outputs) need(output.block.buffer, output.block.rows);
    return right_;
  }

 private:
  IndexRange all(int buffer) const { return {0, program_.buffers[static_cast<std::size_t>(buffer)].rows}; }
  void set(int buffer, const IndexRange& rows) {
    auto& of = rows_[static_cast<std::size_t>(buffer)];
    std::fill(of.begin() + rows.begin, of.begin() + rows.end, true);
    right_ = right_ && plan_.exists[static_cast<std::size_t>(buffer)];
  }
  void need(int buffer, const IndexRange& rows) {
    const auto& of = rows_[static_cast<std::size_t>(buffer)];
    right_ = right_ && plan_.exists[static_cast<std::size_t>(buffer)] &&
             std::all_of(of.begin() + rows.begin, of.begin() + rows.end, [](bool there) { return there; });
  }
  int result(int sums) const { return plan_.result[static_cast<std::size_t>(sums)]; }

  void launch(int index, const Attend& attend) {
    const LaunchPlan& plan = plan_.launches[static_cast<std::size_t>(index)];
    for (const TensorName name : {q, k, v, dout}) {
      if (attend.buffer(name) >= 0)
        need(attend.buffer(name), has_query_rows(name) ? attend.slice.q_rows : attend.slice.kv_rows);
    }
    if (program_.direction == Direction::forward) {
      const int sums = attend.buffer(out_accum);
      if (plan.out == OutputPlacement::result) {
        set(result(sums), attend.slice.q_rows);
        set(attend.buffer(lse), attend.slice.q_rows);
      }
      if (plan.out == OutputPlacement::add) {  // merged: what lse does not know is not read
        need(attend.buffer(lse), attend.slice.q_rows);
        set(sums, attend.slice.q_rows);
      }
      return;
    }
    for (const auto& [name, placement] : {std::pair(dk_accum, plan.dk), std::pair(dv_accum, plan.dv)}) {
      const int sums = attend.buffer(name);
      if (placement == OutputPlacement::result) set(result(sums), attend.slice.kv_rows);
      if (placement == OutputPlacement::add) need(sums, attend.slice.kv_rows);
      if (placement == OutputPlacement::store) set(sums, attend.slice.kv_rows);
    }
  }
  void move(int index, const Move& move) {
    const MovePlan& plan = plan_.moves[static_cast<std::size_t>(index)];
    if (move.kind == MoveKind::add) {
      if (plan.parts.empty() && !plan.nothing) need(move.from.buffer, move.from.rows);
      return need(move.to.buffer, move.to.rows);
    }
    if (move.kind == MoveKind::copy || (plan.parts.empty() && !plan.nothing)) {
      need(move.from.buffer, move.from.rows);
      set(move.to.buffer, move.to.rows);
    }
    for (const int part : plan.parts) {  // merged: every row of a launch sees some key
      const auto& of = std::get<Attend>(program_.operations[static_cast<std::size_t>(part)].what);
      if (program_.direction == Direction::forward) need(of.buffer(lse), of.slice.q_rows);
      set(move.to.buffer, of.slice.q_rows);
    }
    need(move.to.buffer, move.to.rows);
  }

  const DistributedProgram& program_;
  AccumulationPlan plan_;
  std::vector<std::vector<bool>> rows_;  // by buffer: whether they hold something
  bool right_ = true;
};

TEST_CASE("every row of every head has its delta made") {
  for (const LinkSchedule schedule : kLinkSchedules) {
    if (schedule == LinkSchedule::ulysses_ring) continue;  // needs four ranks
    const DistributedProgram program = build_distributed(
        {.heads = 16, .heads_kv = 8, .seqlen_q = 80, .seqlen_k = 80, .head_dim = 16, .causal = true},
        Direction::backward, {schedule, 2});
    const AccumulationPlan plan = plan_accumulation(program);
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < program.operations.size(); ++i) {
      const Attend* const attend = std::get_if<Attend>(&program.operations[i].what);
      if (attend == nullptr || !plan.launches[i].makes_delta) continue;
      rows +=
          attend->slice.q_rows.count() * program.buffers[static_cast<std::size_t>(attend->buffer(lse))].heads;
    }
    CAPTURE(to_string(schedule));
    CHECK(rows >= 16 * 80);
  }
}

TEST_CASE("every row that is read has been written or cleared") {
  for (const DistributedCase& c : distributed_cases()) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      INFO(describe(c));
      CAPTURE(to_string(direction));
      const DistributedProgram program = build_distributed(c.problem, direction, c.options);
      CHECK(Followed(program).right());
    }
  }
}

/// What has ended, by the waits alone, before an operation begins.
std::vector<std::vector<bool>> orders(const DistributedProgram& program) {
  const std::size_t count = program.operations.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (std::size_t b = 0; b < count; ++b) {
    for (const int wait : program.operations[b].waits) {
      const auto a = static_cast<std::size_t>(wait);
      before[b][a] = true;
      for (std::size_t i = 0; i < a; ++i) before[b][i] = before[b][i] || before[a][i];
    }
  }
  return before;
}

/// Whether a copy brings something that a launch reads, and not what other launches leave.
bool feeds(const DistributedProgram& program, std::size_t earlier, std::size_t later) {
  const Move* const move = std::get_if<Move>(&program.operations[earlier].what);
  if (move == nullptr) return false;
  const Attend& attend = std::get<Attend>(program.operations[later].what);
  const IndexRange& rows =
      has_query_rows(program.buffer_of(move->to).tensor) ? attend.slice.q_rows : attend.slice.kv_rows;
  const auto& buffers = attend.buffers;
  return rows.overlaps(move->to.rows) && std::count(buffers.begin(), buffers.end(), move->to.buffer) > 0;
}

TEST_CASE(
    "launches with parts of their own wait for what they read, all others have the order that they had") {
  int free = 0;
  for (const DistributedCase& c : distributed_cases({2, 3, 4})) {
    DistributedProgram program = build_distributed(c.problem, Direction::forward, c.options);
    const AccumulationPlan plan = plan_accumulation(program);
    const auto alone = [&](std::size_t i) {
      return std::holds_alternative<Attend>(program.operations[i].what) &&
             plan.launches[i].out != OutputPlacement::add;
    };
    const auto once = orders(program);
    drop_waits_between_parts(program, plan);
    const auto now = orders(program);
    INFO(describe(c));
    for (std::size_t b = 0; b < once.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        REQUIRE(once[b][a] >= now[b][a]);
        if (once[b][a] == now[b][a]) continue;
        REQUIRE(alone(b));
        REQUIRE(!feeds(program, a, b));
        free += alone(a);
      }
    }
  }
  CHECK(free > 0);
}

struct Placements {
  int result = 0, part = 0, store = 0, add = 0;
};
Placements placements(LinkSchedule schedule, int ranks, Direction direction) {
  const AttentionProblem problem{
      .heads = 4, .heads_kv = 4, .seqlen_q = 64, .seqlen_k = 64, .head_dim = 16, .causal = true};
  const DistributedProgram program = build_distributed(problem, direction, {schedule, ranks});
  const AccumulationPlan plan = plan_accumulation(program);
  Placements placements;
  for (std::size_t i = 0; i < program.operations.size(); ++i) {
    if (!std::holds_alternative<Attend>(program.operations[i].what)) continue;
    const OutputPlacement placement =
        direction == Direction::forward ? plan.launches[i].out : plan.launches[i].dk;
    ++(placement == OutputPlacement::result  ? placements.result
       : placement == OutputPlacement::part  ? placements.part
       : placement == OutputPlacement::store ? placements.store
                                             : placements.add);
  }
  return placements;
}

TEST_CASE("what one launch has alone needs no sum, a ring's first launch stores, the others leave parts") {
  const Placements alone = placements(LinkSchedule::ulysses, 4, Direction::backward);
  CHECK(alone.result == 4);
  CHECK(alone.add + alone.store + alone.part == 0);
  const Placements gathered = placements(LinkSchedule::all_gather, 2, Direction::forward);
  CHECK(gathered.result == 3);  // two segments of rank 0, and those of rank 1, which lie side by side
  const Placements ring = placements(LinkSchedule::zigzag, 2, Direction::forward);
  CHECK(ring.result == 2);
  CHECK(ring.part == 2);
  const Placements back = placements(LinkSchedule::zigzag, 4, Direction::backward);
  CHECK(back.store == 4);
  CHECK(back.part == 16);
  CHECK(back.add == 0);
  // More parts than one pass merges go into sums.
  const Placements many = placements(LinkSchedule::zigzag, 8, Direction::forward);
  CHECK(many.add == 64);
}

}  // namespace
}  // namespace tilescope
