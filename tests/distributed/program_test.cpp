// SPDX-License-Identifier: Apache-2.0
// The programs: closed forms, an order that is enough, memory and balance, and what is refused.
#include "distributed/schedule/distributed_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "distributed/counts/link_traffic.hpp"
#include "distributed/counts/rank_load.hpp"
#include "tests/distributed/schedules.hpp"

namespace tilescope {
namespace {

using testing::distributed_cases;
using testing::DistributedCase;

constexpr Direction kDirections[] = {Direction::forward, Direction::backward};

TEST_CASE("the closed form of link bytes is the sum over the program's transfers") {
  for (const DistributedCase& c : distributed_cases({1, 2, 3, 4, 5, 8})) {
    for (const Direction direction : kDirections) {
      INFO(describe(c));
      const auto formula = link_closed_form(c.problem, direction, c.options);
      CHECK(formula == link_traffic(build_distributed(c.problem, direction, c.options)));
      std::int64_t sent = 0, received = 0;
      for (const LinkBytes& rank : formula) {
        sent += rank.sent;
        received += rank.received;
      }
      CHECK(sent == received);
      CHECK((sent == 0) == (c.options.ranks == 1));
    }
  }
}

/// Even shares: s bytes of K and V a rank.
TEST_CASE("link bytes are the published ones") {
  AttentionProblem problem{.heads = 32,
                           .heads_kv = 8,
                           .seqlen_q = 4096,
                           .seqlen_k = 4096,
                           .head_dim = 128,
                           .dtype = ElementType::bf16,
                           .causal = true};
  constexpr int kRanks = 8;
  const std::int64_t s = 4096 / kRanks * 8 * 2 * 128 * 2, g = 4;
  const auto sent = [&](LinkSchedule schedule, Direction direction) {
    const auto ranks = link_closed_form(problem, direction, {schedule, kRanks});
    for (const LinkBytes& rank : ranks) CHECK(rank == ranks.front());
    return ranks.front().sent;
  };
  for (const LinkSchedule ring : {LinkSchedule::ring, LinkSchedule::zigzag, LinkSchedule::striped}) {
    CHECK(sent(ring, Direction::forward) == (kRanks - 1) * s);
    CHECK(sent(ring, Direction::backward) == (3 * kRanks - 1) * s);
  }
  for (const LinkSchedule gather : {LinkSchedule::all_gather, LinkSchedule::all_gather_heads}) {
    CHECK(sent(gather, Direction::forward) == (kRanks - 1) * s);
    CHECK(sent(gather, Direction::backward) == (kRanks - 1) * 3 * s);
  }
  for (const LinkSchedule by_heads : {LinkSchedule::ulysses, LinkSchedule::ulysses_heads}) {
    for (const Direction direction : kDirections)
      CHECK(sent(by_heads, direction) == (kRanks - 1) * (g + 1) * s / kRanks);
  }
  const auto usp = link_closed_form(problem, Direction::forward, {LinkSchedule::ulysses_ring, kRanks, 4});
  CHECK(usp.front().sent == 3 * (g + 1) * s / 4 + (2 - 1) * s);
}

struct Access {
  BufferBlock block;
  bool writes;
};

std::vector<Access> accesses_of(const DistributedProgram& program, const Operation& operation) {
  if (const Move* const move = std::get_if<Move>(&operation.what))
    return {{move->from, move->kind == MoveKind::add}, {move->to, true}};
  const Attend& attend = std::get<Attend>(operation.what);
  std::vector<Access> all;
  for (int i = 0; i < kNumTensors; ++i) {
    const auto name = static_cast<TensorName>(i);
    const int buffer = attend.buffer(name);
    if (buffer < 0) continue;
    const bool keys = name == TensorName::k || name == TensorName::v || name == TensorName::dk_accum ||
                      name == TensorName::dv_accum;
    const bool sums = name == TensorName::out_accum || name == TensorName::dq_accum ||
                      name == TensorName::dk_accum || name == TensorName::dv_accum;
    const bool statistics = name == TensorName::lse && program.direction == Direction::forward;
    all.push_back({{buffer,
                    {0, program.buffers[static_cast<std::size_t>(buffer)].heads},
                    keys ? attend.slice.kv_rows : attend.slice.q_rows},
                   sums || statistics});
  }
  return all;
}

/// Two operations that touch a block, one of them writing it, must have an order in `waits`: a GPU keeps no
/// other.
TEST_CASE("waits order all operations that meet in memory") {
  for (const DistributedCase& c : distributed_cases({2, 3, 4})) {
    for (const Direction direction : kDirections) {
      INFO(describe(c));
      const DistributedProgram program = build_distributed(c.problem, direction, c.options);
      const std::size_t count = program.operations.size();
      std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
      std::vector<std::vector<Access>> accesses;
      for (std::size_t b = 0; b < count; ++b) {
        accesses.push_back(accesses_of(program, program.operations[b]));
        for (const int wait : program.operations[b].waits) {
          const auto a = static_cast<std::size_t>(wait);
          REQUIRE(a < b);
          before[b][a] = true;
          for (std::size_t i = 0; i < a; ++i) before[b][i] = before[b][i] || before[a][i];
        }
        for (std::size_t a = 0; a < b; ++a) {
          for (const Access& first : accesses[a]) {
            for (const Access& second : accesses[b]) {
              const bool meet = first.block.buffer == second.block.buffer &&
                                first.block.rows.overlaps(second.block.rows) &&
                                first.block.heads.overlaps(second.block.heads);
              if (meet && (first.writes || second.writes)) REQUIRE(before[b][a]);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("blocks lie in their buffers, and moves are of equal extent") {
  for (const DistributedCase& c : distributed_cases()) {
    for (const Direction direction : kDirections) {
      const DistributedProgram program = build_distributed(c.problem, direction, c.options);
      const auto inside = [&](const BufferBlock& block) {
        const Buffer& buffer = program.buffer_of(block);
        return block.heads.begin >= 0 && block.heads.end <= buffer.heads && block.rows.begin >= 0 &&
               block.rows.end <= buffer.rows && block.rows.count() > 0;
      };
      for (const Operation& operation : program.operations) {
        for (const Access& access : accesses_of(program, operation)) REQUIRE(inside(access.block));
        const Move* const move = std::get_if<Move>(&operation.what);
        if (move == nullptr) continue;
        REQUIRE(move->from.heads.count() == move->to.heads.count());
        REQUIRE(move->from.rows.count() == move->to.rows.count());
        if (move->kind != MoveKind::copy) REQUIRE(program.rank_of(move->from) == program.rank_of(move->to));
      }
    }
  }
}

TEST_CASE("the ranks' work adds up to the problem's, and memory to the published terms") {
  for (const DistributedCase& c : distributed_cases()) {
    INFO(describe(c));
    std::int64_t pairs = 0;
    for (const RankLoad& load : rank_loads(build_distributed(c.problem, Direction::forward, c.options)))
      pairs += load.visible_pairs;
    CHECK(pairs == c.problem.visible_pairs());
  }
  const AttentionProblem problem{.heads = 16,
                                 .heads_kv = 8,
                                 .seqlen_q = 1024,
                                 .seqlen_k = 1024,
                                 .head_dim = 64,
                                 .dtype = ElementType::bf16};
  constexpr std::int64_t kRanks = 4, s = 1024 / kRanks * 8 * 2 * 64 * 2, g = 2;
  const auto received = [&](LinkSchedule schedule) {
    return rank_loads(build_distributed(problem, Direction::forward, {schedule, kRanks}))
        .front()
        .received_bytes;
  };
  CHECK(received(LinkSchedule::zigzag) == 2 * s);
  CHECK(received(LinkSchedule::all_gather) == kRanks * s);
  CHECK(received(LinkSchedule::ulysses) == (g + 2) * s / 2);
}

TEST_CASE("causal balance: contiguous shards P / (2 P - 1) in lock step, zigzag even, striped nearly") {
  for (const int ranks : {2, 4, 8}) {
    const std::int64_t n = 4096;
    const AttentionProblem problem{.seqlen_q = n * ranks, .seqlen_k = n * ranks, .causal = true};
    const auto of = [&](LinkSchedule schedule) {
      return balance(build_distributed(problem, Direction::forward, {schedule, ranks}));
    };
    CHECK(of(LinkSchedule::ring).lock_step == doctest::Approx(ranks / (2.0 * ranks - 1)).epsilon(1e-3));
    CHECK(of(LinkSchedule::zigzag).lock_step == 1.0);
    CHECK(of(LinkSchedule::all_gather).overall == 1.0);
    CHECK(of(LinkSchedule::striped).lock_step == doctest::Approx(1.0).epsilon(1e-3));
    CHECK(of(LinkSchedule::striped).lock_step < 1.0);
  }
}

void refused(const AttentionProblem& problem, const DistributedOptions& options, const std::string& field,
             const std::string& value) {
  INFO(field);
  try {
    build_distributed(problem, Direction::forward, options);
    FAIL("not refused");
  } catch (const BadInput& error) {
    CHECK(error.field() == field);
    CHECK(error.value() == value);
    CHECK(!error.allowed().empty());
  }
}

TEST_CASE("what a schedule cannot split is refused by name") {
  const AttentionProblem problem{.heads = 6, .heads_kv = 2, .seqlen_q = 7, .seqlen_k = 9};
  const auto with = [&](auto change) {
    AttentionProblem changed = problem;
    change(changed);
    return changed;
  };
  refused(problem, {LinkSchedule::ring, 8}, "seqlen_q", "7");
  refused(with([](auto& p) { p.seqlen_q = 20; }), {LinkSchedule::ring, 10}, "seqlen_k", "9");
  refused(problem, {LinkSchedule::zigzag, 4}, "seqlen_q", "7");
  refused(problem, {LinkSchedule::all_gather, 4}, "seqlen_q", "7");
  refused(problem, {LinkSchedule::ulysses, 4}, "heads", "6");
  refused(problem, {LinkSchedule::ulysses, 3}, "heads_kv", "2");
  refused(problem, {LinkSchedule::ulysses_ring, 3}, "gpus", "3");
  refused(problem, {LinkSchedule::ulysses_ring, 4, 3}, "ulysses", "3");
  refused(problem, {LinkSchedule::zigzag, 2, 2}, "ulysses", "2");
  refused(problem, {LinkSchedule::ring, 0}, "gpus", "0");
  refused(problem, {LinkSchedule::ring, kMostRanks + 1}, "gpus", std::to_string(kMostRanks + 1));
  refused(with([](auto& p) { p.window_left = 3; }), {LinkSchedule::ring, 2}, "window", "3,-1");
  refused(with([](auto& p) { p.dropout = 0.5; }), {LinkSchedule::ring, 2}, "dropout", "0.500000");
  refused(with([](auto& p) { p.dtype = ElementType::fp8e4m3; }), {LinkSchedule::ring, 2}, "dtype", "fp8e4m3");
  refused(with([](auto& p) { p.key_lengths = {4}; }), {LinkSchedule::ring, 2}, "key_lengths", "4,...");
  CHECK_THROWS_AS(parse_link_schedule("zigzig"), UnknownName);
}

/// All that a rank can do with one key/value head of `tokens` tokens: for each query head of the group so
/// many query rows, and so many key rows for all of them.
double least_by_enumeration(int tokens, int group, int heads_kv, int ranks) {
  const int own = tokens / ranks;
  struct Choice {
    int scores, moved;  // rows of head_dim elements
  };
  std::vector<Choice> of_head;
  std::vector<int> rows(static_cast<std::size_t>(group));
  for (int keys = 0; keys <= tokens; ++keys) {
    const auto choose = [&](auto&& self, int head, int scores, int moved) -> void {
      if (head == group) return of_head.push_back({scores, moved + 2 * std::max(0, keys - own)});
      for (int queries = 0; queries <= tokens; ++queries)
        self(self, head + 1, scores + queries * keys, moved + 2 * std::max(0, queries - own));
    };
    choose(choose, 0, 0, 0);
  }
  // The least that is moved for at least so many scores, head by head.
  const int needed = heads_kv * group * tokens * tokens / ranks;
  constexpr int kNever = 1 << 20;
  std::vector<int> least(static_cast<std::size_t>(needed) + 1, kNever);
  least[0] = 0;
  for (int head = 0; head < heads_kv; ++head) {
    std::vector<int> next(least.size(), kNever);
    for (int done = 0; done <= needed; ++done) {
      if (least[static_cast<std::size_t>(done)] == kNever) continue;
      for (const Choice& choice : of_head) {
        int& best = next[static_cast<std::size_t>(std::min(needed, done + choice.scores))];
        best = std::min(best, least[static_cast<std::size_t>(done)] + choice.moved);
      }
    }
    least = next;
  }
  return least[static_cast<std::size_t>(needed)];
}

TEST_CASE("the lower bound holds against every way to share the scores, and is met where it is said to be") {
  for (const int group : {1, 2}) {
    for (const int ranks : {2, 3, 4}) {
      for (const int heads_kv : {1, 2, 4}) {
        const int tokens = ranks == 3 ? 6 : 4;
        AttentionProblem problem{.heads = group * heads_kv,
                                 .heads_kv = heads_kv,
                                 .seqlen_q = tokens,
                                 .seqlen_k = tokens,
                                 .head_dim = 8,
                                 .dtype = ElementType::bf16};
        const double least = least_by_enumeration(tokens, group, heads_kv, ranks) * 8 * 2;
        const double bound = least_link_bytes(problem, Direction::forward, ranks).value();
        CAPTURE(group);
        CAPTURE(ranks);
        CAPTURE(heads_kv);
        CHECK(least >= bound * (1 - 1e-12));
        // P <= g: nothing moves less than a ring.
        if (ranks <= group) {
          CHECK(bound == link_closed_form(problem, Direction::forward, {LinkSchedule::ring, ranks})[0].sent);
          CHECK(least == bound);
        }
        // P >= g: Ulysses moves (P + 1) / P of it.
        if (ranks >= group && heads_kv % ranks == 0) {
          const auto ulysses = link_closed_form(problem, Direction::forward, {LinkSchedule::ulysses, ranks});
          CHECK(static_cast<double>(ulysses[0].sent) == doctest::Approx(bound * (ranks + 1) / ranks));
        }
      }
    }
  }
  AttentionProblem causal{.seqlen_q = 8, .seqlen_k = 8, .causal = true};
  CHECK(!least_link_bytes(causal, Direction::forward, 2));
}

}  // namespace
}  // namespace tilescope
