// SPDX-License-Identifier: Apache-2.0
// Executes a distributed program on this CPU: a thread a rank, which owns its buffers and does its operations
// in the program's order; what crosses ranks is copied into a message and out of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "distributed/counts/link_traffic.hpp"
#include "distributed/execution/rank_failure.hpp"
#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// Messages between ranks. Nobody waits for ever: a rank that fails ends the waits of all, and so does a time
/// in which no rank gets anything done.
class Exchange {
 public:
  using Message = std::vector<std::byte>;
  /// Why a receive() gave nothing.
  enum class Outcome : std::uint8_t { arrived, another_failed, nobody_moves };

  Exchange(int ranks, std::chrono::milliseconds time_limit);

  /// Leaves the message of an operation for its receiver.
  void send(int from, int operation, Message message);
  /// Waits for the message of an operation.
  Outcome receive(int to, int operation, Message& message);
  /// The first rank that neither waits nor has ended: the one that the others wait for. -1: there is none.
  int running_rank() const;
  /// A rank has done all its operations.
  void end(int rank);
  /// A rank has finished an operation: the time limit begins anew.
  void progress();
  /// All waits end.
  void fail();
  /// What has been sent and received so far, by rank.
  std::vector<LinkBytes> link_bytes() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Message> messages_;  // by operation
  std::vector<LinkBytes> bytes_;
  std::vector<bool> idle_;  // by rank: waits, or has ended
  std::chrono::milliseconds time_limit_;
  Clock::time_point last_progress_;
  bool failed_ = false;
};

struct RankOptions {
  /// A kernel of flash2, whose backward pass takes the merged out and lse. Null: cpu:flash2.
  const Kernel* kernel = nullptr;
  std::optional<TileShape> tile = std::nullopt;  // of every launch, in place of the kernel's own
  /// Without an operation of any rank ending: then the program is ended.
  std::chrono::milliseconds time_limit = std::chrono::minutes(5);
  /// Called by each rank before each of its operations, for tests of faults.
  std::function<void(int rank, int operation)> before = nullptr;
};

/// Reads the program's inputs from `tensors`, allocates and writes its outputs there.
/// @return what the ranks exchanged
/// @throws RankFailure naming the rank, once all have ended; BadInput or MachineLacks if that was its reason
std::vector<LinkBytes> run_on_ranks(const DistributedProgram& program, TensorSet& tensors,
                                    const RankOptions& options = {});

/// What runs a program: reads its inputs from the tensors and leaves its outputs there.
/// @return what the ranks exchanged, by rank; empty where nobody has counted it
using ProgramRunner = std::function<std::vector<LinkBytes>(const DistributedProgram&, TensorSet&)>;

/// A schedule's results judged as those of any kernel.
struct RankVerdict {
  Verdict verdict;
  std::vector<LinkBytes> forward, backward;  // exchanged; no backward: empty
};
/// Forward and, if `direction` is backward, backward on its own forward results.
RankVerdict judge_on_ranks(Reference& reference, Direction direction, const DistributedOptions& schedule,
                           const ProgramRunner& run);
RankVerdict judge_on_ranks(Reference& reference, Direction direction, const DistributedOptions& schedule,
                           const RankOptions& options = {});

}  // namespace tilescope
