// SPDX-License-Identifier: Apache-2.0
// What each rank enqueues on which stream of its device, and which ends on other streams that waits for.
// Lanes do what they are given in order. Ranks take the operations in the order of the program, so that
// nothing waits in a circle.
#pragma once

#include <string>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// What carries copies between ranks.
enum class Transport : std::uint8_t {
  copy_engine,  // the sender's: a stream for each peer, no multiprocessors
  nccl,         // sends and receives on one stream of both ranks; those that may go at once make one group
};
inline constexpr Transport kTransports[] = {Transport::copy_engine, Transport::nccl};
std::string_view to_string(Transport transport);
/// @throws UnknownName naming the nearest
Transport parse_transport(const std::string& name);

/// The end of an operation, on a rank that took part in it.
struct OperationEnd {
  int rank = 0, operation = 0;
  bool operator==(const OperationEnd&) const = default;
};

struct Enqueued {
  std::vector<int> operations;      // one, or the copies of a group
  int stream = 0;                   // below RankPlan::compute_streams: launches, additions, roundings
  std::vector<OperationEnd> waits;  // the last of each other stream
  bool awaited = false;             // another stream waits for its end
};

/// The first streams are the program's compute streams and do what stays inside the rank; the others copy.
struct RankPlan {
  int compute_streams = 1, streams = 1;
  std::vector<Enqueued> enqueued;
};

/// By rank.
std::vector<RankPlan> enqueue_plans(const DistributedProgram& program, Transport transport);

}  // namespace tilescope
