// SPDX-License-Identifier: Apache-2.0
// What ranks enqueue on which streams: whichever stream comes first, the waits alone keep the results right,
// and nothing waits in a circle.
#include "distributed/execution/enqueue_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "distributed/execution/cpu_rank.hpp"
#include "distributed/execution/run_on_ranks.hpp"
#include "tests/distributed/schedules.hpp"

namespace tilescope {
namespace {

using testing::distributed_cases;
using testing::DistributedCase;
using testing::kTile;
using testing::same_bits;

/// Lanes that go on in an order drawn at random, as far as waits allow it, on ranks of this CPU.
class RandomLanes {
 public:
  RandomLanes(const DistributedProgram& program, std::vector<RankPlan> plans, std::uint64_t seed)
      : program_(program), plans_(std::move(plans)), random_(seed) {
    for (int rank = 0; rank < program.ranks; ++rank) {
      ranks_.emplace_back(rank, program, default_rank_kernel(), kTile);
      const RankPlan& plan = plans_[static_cast<std::size_t>(rank)];
      for (int stream = 0; stream < plan.streams; ++stream) {
        Stream& queue = streams_.emplace_back();
        for (const Enqueued& entry : plan.enqueued) {
          if (entry.stream == stream) queue.entries.push_back(&entry);
        }
        queue.rank = rank;
      }
    }
  }
  /// @return whether all got to the end
  bool run(TensorSet& tensors) {
    for (CpuRank& rank : ranks_) rank.read_inputs(tensors);
    while (step()) {
    }
    for (const TensorName name : output_tensors(program_.problem, program_.direction)) tensors.allocate(name);
    for (const CpuRank& rank : ranks_) rank.write_outputs(tensors);
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const Stream& stream) { return stream.head() == nullptr; });
  }

 private:
  struct Stream {
    int rank = 0;
    std::vector<const Enqueued*> entries;
    std::size_t next = 0;
    const Enqueued* head() const { return next < entries.size() ? entries[next] : nullptr; }
  };
  bool ready(const Stream& stream) const {
    const Enqueued* const head = stream.head();
    return head != nullptr &&
           std::all_of(head->waits.begin(), head->waits.end(), [&](const OperationEnd& end) {
             return ended_.contains({end.rank, end.operation});
           });
  }
  /// The streams that must be ready with it: those whose heads share operations with it, and so on.
  bool gather(Stream& stream, std::set<Stream*>& together) {
    if (!ready(stream)) return false;
    if (!together.insert(&stream).second) return true;
    for (const int operation : stream.head()->operations) {
      for (Stream& other : streams_) {
        const bool has = std::any_of(other.entries.begin(), other.entries.end(), [&](const Enqueued* entry) {
          return std::count(entry->operations.begin(), entry->operations.end(), operation) > 0;
        });
        if (!has) continue;
        const Enqueued* const head = other.head();
        const bool at_head =
            head != nullptr && std::count(head->operations.begin(), head->operations.end(), operation) > 0;
        if (!at_head || !gather(other, together)) return false;
      }
    }
    return true;
  }
  bool step() {
    std::vector<Stream*> order;
    for (Stream& stream : streams_) order.push_back(&stream);
    std::shuffle(order.begin(), order.end(), random_);
    for (Stream* const stream : order) {
      std::set<Stream*> together;
      if (!gather(*stream, together)) continue;
      std::set<int> operations;
      for (Stream* const one : together) {
        for (const int operation : one->head()->operations) {
          operations.insert(operation);
          ended_.insert({one->rank, operation});
        }
        ++one->next;
      }
      for (const int operation : operations)
        execute(program_.operations[static_cast<std::size_t>(operation)]);
      return true;
    }
    return false;
  }
  void execute(const Operation& operation) {
    const Move* const move = std::get_if<Move>(&operation.what);
    const auto rank = static_cast<std::size_t>(program_.rank_of(operation));
    if (move == nullptr || program_.rank_of(move->from) == program_.rank_of(move->to))
      return ranks_[rank].run(operation);
    ranks_[static_cast<std::size_t>(program_.rank_of(move->to))].unpack(move->to,
                                                                        ranks_[rank].pack(move->from));
  }

  const DistributedProgram& program_;
  std::vector<RankPlan> plans_;
  std::mt19937_64 random_;
  std::vector<CpuRank> ranks_;
  std::vector<Stream> streams_;
  std::set<std::pair<int, int>> ended_;
};

/// Runs both directions by messages, and again by `run`. @return whether all outputs have the same bits
bool same_as_by_messages(const DistributedCase& c,
                         const std::function<bool(const DistributedProgram&, TensorSet&)>& run) {
  TensorSet tensors(c.problem), again(c.problem);
  for (TensorSet* const each : {&tensors, &again}) fill_random_inputs(*each, Direction::backward);
  bool same = true;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const DistributedProgram program = build_distributed(c.problem, direction, c.options);
    run_on_ranks(program, tensors, {.tile = kTile});
    same = same && run(program, again);
    for (const TensorName name : output_tensors(c.problem, direction))
      same = same && same_bits(tensors[name], again[name]);
  }
  return same;
}

TEST_CASE("streams in any order that the waits allow give the same bits, and get to the end") {
  std::uint64_t seed = 1;
  for (const DistributedCase& c : distributed_cases({1, 2, 3, 4})) {
    if (c.problem.seqlen_q == 64 || c.problem.heads > 12) continue;
    if (c.options.schedule == LinkSchedule::all_gather_heads && c.options.ranks > 3) continue;  // takes long
    for (const Transport transport : kTransports) {
      INFO(describe(c));
      CAPTURE(to_string(transport));
      CAPTURE(seed);
      CHECK(same_as_by_messages(c, [&](const DistributedProgram& program, TensorSet& tensors) {
        return RandomLanes(program, enqueue_plans(program, transport), seed++).run(tensors);
      }));
    }
  }
}

TEST_CASE("without waits some order of the streams gives other results") {
  const DistributedCase c{{.heads = 2, .seqlen_q = 83, .seqlen_k = 83, .head_dim = 16},
                          {LinkSchedule::zigzag, 3}};
  for (const Transport transport : kTransports) {
    bool always_same = true;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      always_same =
          always_same && same_as_by_messages(c, [&](const DistributedProgram& program, TensorSet& tensors) {
            std::vector<RankPlan> plans = enqueue_plans(program, transport);
            for (RankPlan& plan : plans) {
              for (Enqueued& entry : plan.enqueued) entry.waits.clear();
            }
            return RandomLanes(program, plans, seed).run(tensors);
          });
    }
    CHECK(!always_same);
  }
}

TEST_CASE("each rank has all of its operations once, in order, and an awaited end is noted") {
  for (const DistributedCase& c : distributed_cases({2, 4})) {
    const DistributedProgram program = build_distributed(c.problem, Direction::backward, c.options);
    for (const Transport transport : kTransports) {
      const std::vector<RankPlan> plans = enqueue_plans(program, transport);
      std::vector<int> times(program.operations.size());
      std::set<std::pair<int, int>> noted;
      for (int rank = 0; rank < program.ranks; ++rank) {
        for (const Enqueued& entry : plans[static_cast<std::size_t>(rank)].enqueued) {
          CHECK(entry.stream < plans[static_cast<std::size_t>(rank)].streams);
          for (const int operation : entry.operations) {
            ++times[static_cast<std::size_t>(operation)];
            if (entry.awaited) noted.insert({rank, operation});
          }
        }
      }
      std::size_t transfers = 0;
      for_each_transfer(program, [&](const Operation&, const Move&) { ++transfers; });
      const std::size_t twice = transport == Transport::nccl ? transfers : 0;
      CHECK(static_cast<std::size_t>(std::count(times.begin(), times.end(), 2)) == twice);
      CHECK(static_cast<std::size_t>(std::count(times.begin(), times.end(), 1)) == times.size() - twice);
      for (const RankPlan& plan : plans) {
        for (const Enqueued& entry : plan.enqueued) {
          for (const OperationEnd& end : entry.waits) CHECK(noted.contains({end.rank, end.operation}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
