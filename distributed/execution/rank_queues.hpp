// SPDX-License-Identifier: Apache-2.0
// Ranks that enqueue their operations, a thread each, on whatever does them: a device, or a test's stand-in.
// Nobody waits for ever: a rank that fails ends all, and so does a time in which nothing gets done.
#pragma once

#include <chrono>
#include <functional>
#include <span>

#include "distributed/execution/enqueue_plan.hpp"

namespace tilescope {

/// What does the operations of one rank. Each call comes from the rank's own thread; nothing but finished()
/// looks at whether something is done.
class RankQueue {
 public:
  virtual ~RankQueue() = default;
  /// Before the first operation of a repetition: later ones find sums cleared, and all ranks done with what
  /// was before.
  virtual void begin(int repetition) = 0;
  /// What is enqueued on `stream` from now on waits for an end that its rank has noted.
  virtual void wait_for(int stream, const OperationEnd& end) = 0;
  virtual void enqueue(const Enqueued& entry) = 0;
  /// Others may wait for what was enqueued last.
  virtual void note_end(const Enqueued& entry) = 0;
  /// After the last operation of a repetition.
  virtual void end(int repetition) = 0;
  /// Whether everything that was enqueued is done. @throws if it failed
  virtual bool finished() = 0;
  /// Gives up what is under way, as far as that is possible.
  virtual void abandon() noexcept = 0;
};

struct QueueOptions {
  int repetitions = 1;
  /// From the last sign of progress on; then the program is ended.
  std::chrono::milliseconds time_limit = std::chrono::minutes(2);
  /// Called by each rank before it enqueues each of its operations, for tests of faults.
  std::function<void(int rank, int operation)> before = nullptr;
  /// Where other processes have the other ranks: called while one waits, throws if one of those has failed.
  std::function<void()> elsewhere = nullptr;
  /// In that case, called when the time is over, with what to say of whoever is to blame. Throws.
  std::function<void(const std::string& why)> stalled = nullptr;
};

/// Runs the plans, one queue a rank, and returns when all are done. Null: a rank of another process, whose
/// ends nothing here waits for.
/// @throws RankFailure naming the rank, once all have ended; BadInput or MachineLacks if that was its reason
void run_queues(const DistributedProgram& program, const std::vector<RankPlan>& plans,
                std::span<RankQueue* const> queues, const QueueOptions& options);

}  // namespace tilescope
