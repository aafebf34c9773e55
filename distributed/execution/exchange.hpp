// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that are threads. Nobody waits for ever: a rank that fails ends the waits of all,
// and so does a time in which no rank gets anything done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "distributed/counts/link_traffic.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {

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

}  // namespace tilescope
