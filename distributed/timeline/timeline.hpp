// SPDX-License-Identifier: Apache-2.0
// The time of a distributed program on a model of P equal ranks: each gives the CTAs of its launches to the
// SMs that are free first, and has a link out and a link in that carry one transfer after the other. What the
// pass takes longer than a P-th of one GPU's time is told apart by its causes.
#pragma once

#include <cstddef>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"
#include "distributed/timeline/device_work.hpp"

namespace tilescope {

struct RankRates {
  /// The rate of one GPU with the whole problem, all its passes together, by useful FLOP.
  double flops_per_second = 0;
  double memory_bytes_per_second = 0;  // of what merges, widens and rounds: bytes read and written
  double link_bytes_per_second = 0;    // one direction
  double link_latency_seconds = 0;     // of a transfer, whatever its bytes
  double launch_seconds = 0;           // until a kernel begins whose turn it is
};

struct RankTime {
  double attention_seconds = 0;    // launches, as if all SMs shared them evenly
  double elementwise_seconds = 0;  // additions, merges, roundings
  double link_seconds = 0;         // the busier of its two directions
  double end_seconds = 0;          // its last operation or arrival
};

/// Where time goes, of the SMs of a GPU together. [seconds]
struct TimeSplit {
  double tiles = 0;     // computing
  double tails = 0;     // SMs that are done while others still compute
  double sums = 0;      // merges, additions, roundings
  double launches = 0;  // until the next kernel begins
  double bytes = 0;     // nothing to do until bytes have come over the link, or have gone
  double latency = 0;   // the same until a transfer has begun
  double others = 0;    // the same until another GPU has done its part
  double total() const { return tiles + tails + sums + launches + bytes + latency + others; }
};

struct RankTimeline {
  std::vector<RankTime> ranks;
  double seconds = 0;
  double one_gpu_seconds = 0;  // with the whole problem
  /// What so many GPUs without links would reach: one GPU's time over that of all together.
  double efficiency = 0;
  /// How long the rank that ends last had nothing to compute: until bytes came, or another rank had done its
  /// part. [seconds]
  double exposed_seconds = 0;
  /// What the rank that ends last takes above a P-th of one GPU's time; their total is what P GPUs lose.
  TimeSplit lost;

  /// The one that ends last.
  std::size_t last_rank() const;
};

/// Operations start as soon as what they wait for has ended and their compute stream or links are free; of
/// several the first of the program. Copies on one rank cost nothing.
/// @param kernel  null: a launch takes its useful FLOP and ends on all SMs at once, and sums are made by the
///                program's additions and roundings
RankTimeline predict_timeline(const DistributedProgram& program, const RankRates& rates,
                              const RankKernel* kernel = nullptr);

}  // namespace tilescope
