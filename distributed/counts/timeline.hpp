// SPDX-License-Identifier: Apache-2.0
// The time of a distributed program on a model of P equal ranks: each computes one launch after the other at
// a given rate, and has a link out and a link in that carry one transfer after the other.
#pragma once

#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

struct RankRates {
  double flops_per_second = 0;         // of launches, by useful FLOP
  double memory_bytes_per_second = 0;  // of additions and roundings: bytes read and written
  double link_bytes_per_second = 0;    // one direction
  double link_latency_seconds = 0;     // of a transfer, whatever its bytes
};

struct RankTime {
  double attention_seconds = 0;    // launches
  double elementwise_seconds = 0;  // additions, roundings
  double link_seconds = 0;         // the busier of its two directions
  double end_seconds = 0;          // its last operation or arrival
};

struct RankTimeline {
  std::vector<RankTime> ranks;
  double seconds = 0;
  /// Of one rank with an even share of the work and no link, over `seconds`.
  double efficiency = 0;
  /// What the longest-working rank is not working. [seconds]
  double exposed_seconds = 0;
};

/// Operations start in the program's order as soon as what they wait for has ended and their rank or links
/// are free. Copies on one rank cost nothing.
RankTimeline predict_timeline(const DistributedProgram& program, const RankRates& rates);

}  // namespace tilescope
