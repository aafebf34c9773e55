// SPDX-License-Identifier: Apache-2.0
// What studies `sparsity` and `parallelism` come to.
#pragma once

#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// One direction under one window, for FlashAttention's Proposition 4.
struct SparsityPoint {
  const RunSummary* run = nullptr;
  double share = 0;     // of tiles that are visited
  double accesses = 0;  // of a head, over N d + share N^2 d^2 / M
};
/// By ascending share, forward first.
std::vector<SparsityPoint> sparsity_points(const std::vector<RunSummary>& study);

/// One algorithm and direction on so many heads.
struct ParallelismPoint {
  const RunSummary* run = nullptr;
  std::int64_t heads = 0;
  std::int64_t ctas = 0;  // of the pass that computes most
  double busy = 0;        // share of the SMs' time that equal CTAs, one an SM, keep busy
};
std::vector<ParallelismPoint> parallelism_points(const std::vector<RunSummary>& study);
/// Of an algorithm and direction on so many heads, or null.
const ParallelismPoint* find_point(const std::vector<ParallelismPoint>& points, Algorithm algorithm,
                                   Direction direction, std::int64_t heads);

}  // namespace tilescope
