// SPDX-License-Identifier: Apache-2.0
// Which schedules move the bytes that somebody's run was seen to move over a link.
#pragma once

#include <string>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// Ways to share a problem that send the same bytes.
struct ScheduleFit {
  std::vector<LinkSchedule> schedules;
  std::string how;        // "dK and dV in fp32, by NCCL's protocol LL128": what the bytes rest on besides
  double sent_bytes = 0;  // by the GPU that sends most
  double difference = 0;  // of what was seen from it, 1.0 = 100 %
};

/// Flags and headers of protocols take more than that only where messages are small.
inline constexpr double kLinkFit = 0.01;

/// Those within kLinkFit, the nearest first; where two are as near, the one that rests on less. Besides each
/// schedule's own closed form, what others do with it: gradients summed in the element type, K and V kept
/// from the forward pass, and NCCL's protocols (LL128 carries 120 of 128 bytes as data, LL half).
/// @param sent_bytes  of user data, by the GPU that sends most, in one pass
std::vector<ScheduleFit> fit_schedules(const AttentionProblem& problem, Direction direction, int ranks,
                                       double sent_bytes);

}  // namespace tilescope
