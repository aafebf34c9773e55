// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/rank_queues.hpp"

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Another rank has failed, which says more.
struct EndedByAnother {};

/// Where the threads of the ranks meet: which ends have been noted, and that one of them failed.
class Rendezvous {
 public:
  Rendezvous(const DistributedProgram& program, std::span<RankQueue* const> queues,
             const QueueOptions& options)
      : program_(program),
        ranks_(program.ranks),
        operations_(program.operations.size()),
        options_(options),
        noted_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(ranks_) * operations_)),
        arrived_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(ranks_))),
        awaits_(std::make_unique<std::atomic<int>[]>(static_cast<std::size_t>(ranks_))) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks_) * operations_; ++i) noted_[i] = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const bool here = queues[static_cast<std::size_t>(rank)] != nullptr;
      arrived_[static_cast<std::size_t>(rank)] = here ? 0 : std::numeric_limits<int>::max();
      awaits_[static_cast<std::size_t>(rank)] = rank;
    }
    progress();
  }

  void note(int rank, int operation, int repetition) {
    at(rank, operation).store(repetition + 1, std::memory_order_release);
  }
  void await(int rank, const OperationEnd& end, int repetition) {
    const std::atomic<int>& noted = at(end.rank, end.operation);
    wait_until([&] { return noted.load(std::memory_order_acquire) > repetition; }, rank, end.rank,
               program_.operations[static_cast<std::size_t>(end.operation)].step);
  }
  /// All ranks have enqueued a repetition.
  void meet(int rank) {
    const int times = ++arrived_[static_cast<std::size_t>(rank)];
    for (int other = 0; other < ranks_; ++other) {
      const std::atomic<int>& arrived = arrived_[static_cast<std::size_t>(other)];
      wait_until([&] { return arrived.load(std::memory_order_acquire) >= times; }, rank, other,
                 program_.steps() - 1);
    }
  }
  /// `rank` waits for something of `awaited`. @throws EndedByAnother, or RankFailure when the time is over
  template <typename Done>
  void wait_until(Done&& done, int rank, int awaited, int step) {
    awaits_[static_cast<std::size_t>(rank)] = awaited;
    for (int turn = 0; !done(); ++turn) {
      require_no_failure();
      if (SteadyClock::now().time_since_epoch().count() - last_progress_.load() >
          SteadyClock::duration(options_.time_limit).count()) {
        const std::string why = "did nothing for " + std::to_string(options_.time_limit.count()) + " ms";
        if (options_.stalled) options_.stalled(why);
        throw RankFailure(last_awaited(rank), step, why);
      }
      if (turn <= kSpins) continue;
      if (options_.elsewhere) options_.elsewhere();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    awaits_[static_cast<std::size_t>(rank)] = rank;
  }
  void require_no_failure() const {
    if (failed_.load(std::memory_order_acquire)) throw EndedByAnother{};
  }
  void progress() { last_progress_ = SteadyClock::now().time_since_epoch().count(); }
  void fail() { failed_.store(true, std::memory_order_release); }

 private:
  /// The rank at the end of those that wait for each other: it waits for nobody else.
  int last_awaited(int rank) const {
    for (int i = 0; i < ranks_; ++i) rank = awaits_[static_cast<std::size_t>(rank)];
    return rank;
  }
  static constexpr int kSpins = 10000;  // turns before a waiting thread leaves its core to others

  std::atomic<int>& at(int rank, int operation) {
    return noted_[static_cast<std::size_t>(rank) * operations_ + static_cast<std::size_t>(operation)];
  }

  const DistributedProgram& program_;
  int ranks_;
  std::size_t operations_;
  const QueueOptions& options_;
  std::unique_ptr<std::atomic<int>[]> noted_, arrived_;  // repetitions
  std::unique_ptr<std::atomic<int>[]> awaits_;           // by rank: for whom it waits, or itself
  std::atomic<SteadyClock::rep> last_progress_{0};
  std::atomic<bool> failed_{false};
};

class RankThread {
 public:
  RankThread(int rank, const DistributedProgram& program, const RankPlan& plan, RankQueue& queue,
             const QueueOptions& options, Rendezvous& rendezvous)
      : rank_(rank),
        program_(program),
        plan_(plan),
        queue_(queue),
        options_(options),
        rendezvous_(rendezvous) {}

  void run() {
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      queue_.begin(repetition);
      for (const Enqueued& entry : plan_.enqueued) enqueue(entry, repetition);
      queue_.end(repetition);
      rendezvous_.meet(rank_);
    }
    rendezvous_.wait_until([this] { return queue_.finished(); }, rank_, rank_, program_.steps() - 1);
    rendezvous_.progress();
  }
  int step() const { return step_; }

 private:
  void enqueue(const Enqueued& entry, int repetition) {
    step_ = program_.operations[static_cast<std::size_t>(entry.operations.front())].step;
    if (options_.before) {
      for (const int operation : entry.operations) options_.before(rank_, operation);
    }
    rendezvous_.require_no_failure();
    for (const OperationEnd& end : entry.waits) {
      if (end.rank != rank_) rendezvous_.await(rank_, end, repetition);
      queue_.wait_for(entry.stream, end);
    }
    queue_.enqueue(entry);
    if (entry.awaited) queue_.note_end(entry);
    for (const int operation : entry.operations) rendezvous_.note(rank_, operation, repetition);
    rendezvous_.progress();
  }

  int rank_, step_ = 0;
  const DistributedProgram& program_;
  const RankPlan& plan_;
  RankQueue& queue_;
  const QueueOptions& options_;
  Rendezvous& rendezvous_;
};

}  // namespace

void run_queues(const DistributedProgram& program, const std::vector<RankPlan>& plans,
                std::span<RankQueue* const> queues, const QueueOptions& options) {
  Rendezvous rendezvous(program, queues, options);
  FirstFailure failure;
  run_threads(program.ranks, [&](int rank) {
    if (queues[static_cast<std::size_t>(rank)] == nullptr) return;
    RankQueue& queue = *queues[static_cast<std::size_t>(rank)];
    RankThread thread(rank, program, plans[static_cast<std::size_t>(rank)], queue, options, rendezvous);
    try {
      thread.run();
    } catch (const EndedByAnother&) {
      queue.abandon();
    } catch (...) {
      failure.keep(rank, thread.step());
      rendezvous.fail();
      queue.abandon();
    }
  });
  failure.rethrow();
}

}  // namespace tilescope
