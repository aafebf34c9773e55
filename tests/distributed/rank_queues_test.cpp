// SPDX-License-Identifier: Apache-2.0
// Ranks that enqueue on threads of their own: who fails is named, and nobody waits for ever.
#include "distributed/execution/rank_queues.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>

#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

constexpr int kRanks = 4;

/// Notes what it is asked for, and does nothing.
class IdleQueue final : public RankQueue {
 public:
  int repetitions = 0, entries = 0;
  bool gave_up = false, never_finishes = false;

  void begin(int repetition) override { CHECK(repetition == repetitions); }
  void wait_for(int, const OperationEnd&) override {}
  void enqueue(const Enqueued&) override { ++entries; }
  void note_end(const Enqueued&) override {}
  void end(int) override { ++repetitions; }
  bool finished() override { return !never_finishes; }
  void abandon() noexcept override { gave_up = true; }
};

struct Ranks {
  DistributedProgram program =
      build_distributed({.heads = 4, .heads_kv = 4, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 16},
                        Direction::forward, {LinkSchedule::zigzag, kRanks});
  std::vector<RankPlan> plans = enqueue_plans(program, Transport::copy_engine);
  std::vector<IdleQueue> queues = std::vector<IdleQueue>(kRanks);

  void run(const QueueOptions& options) {
    std::vector<RankQueue*> all;
    for (IdleQueue& queue : queues) all.push_back(&queue);
    run_queues(program, plans, all, options);
  }
  std::string failure_of(const QueueOptions& options, int& rank) {
    try {
      run(options);
    } catch (const RankFailure& failure) {
      rank = failure.rank();
      return failure.what();
    }
    return "nothing failed";
  }
};

TEST_CASE("every rank enqueues its plan once a repetition") {
  Ranks ranks;
  ranks.run({.repetitions = 3});
  for (std::size_t r = 0; r < ranks.queues.size(); ++r) {
    CHECK(ranks.queues[r].repetitions == 3);
    CHECK(ranks.queues[r].entries == 3 * static_cast<int>(ranks.plans[r].enqueued.size()));
    CHECK(!ranks.queues[r].gave_up);
  }
}

TEST_CASE("a rank that throws ends all of them, and is named, a refusal stays one") {
  for (int rank = 0; rank < kRanks; ++rank) {
    Ranks ranks;
    int failed = -1;
    const std::string what = ranks.failure_of(
        {.before =
             [&](int who, int operation) {
               const int step = ranks.program.operations[static_cast<std::size_t>(operation)].step;
               if (who == rank && step == 2) throw std::runtime_error("the device is gone");
             }},
        failed);
    CHECK(failed == rank);
    CHECK(what == "rank " + std::to_string(rank) + " failed in step 2: the device is gone");
    CHECK(ranks.queues[static_cast<std::size_t>(rank)].gave_up);
  }
  Ranks ranks;
  CHECK_THROWS_AS(ranks.run({.before = [](int, int) { throw BadInput("refused"); }}), BadInput);
}

TEST_CASE("a rank that stands still, and one whose device does, end all within the time limit") {
  using namespace std::chrono_literals;
  for (const bool in_thread : {true, false}) {
    Ranks ranks;
    int failed = -1;
    QueueOptions options{.time_limit = 200ms};
    if (in_thread) {
      options.before = [](int who, int operation) {
        if (who == 2 && operation > 12) std::this_thread::sleep_for(600ms);
      };
    } else {
      ranks.queues[2].never_finishes = true;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string what = ranks.failure_of(options, failed);
    CHECK(failed == 2);
    CHECK(what.find("did nothing for 200 ms") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
    CHECK(ranks.queues[2].gave_up);
  }
}

}  // namespace
}  // namespace tilescope
