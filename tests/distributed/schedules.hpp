// SPDX-License-Identifier: Apache-2.0
// Problems and rank counts that tests of the schedules go through, and what they compare.
#pragma once

#include <cstring>
#include <vector>

#include "cpu_ref/numeric/tensor.hpp"
#include "distributed/schedule/distributed_program.hpp"

namespace tilescope::testing {

inline constexpr TileShape kTile{16, 16};

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

struct DistributedCase {
  AttentionProblem problem;
  DistributedOptions options;
};

/// Every schedule on every number of ranks: causal and not, grouped heads, lengths that nothing divides.
inline std::vector<DistributedCase> distributed_cases(std::vector<int> ranks = {1, 2, 3, 4, 8}) {
  struct Lengths {
    std::int64_t q, k;
  };
  std::vector<DistributedCase> cases;
  for (const LinkSchedule schedule : kLinkSchedules) {
    for (const int p : ranks) {
      const bool two = schedule == LinkSchedule::ulysses_ring;
      if (two && p != 4 && p != 8) continue;
      const bool in_groups = schedule == LinkSchedule::all_gather_heads;  // two, backward three
      const std::int64_t heads_kv = schedule == LinkSchedule::ulysses         ? p
                                    : schedule == LinkSchedule::ulysses_heads ? 3 * p
                                    : two                                     ? 4
                                    : in_groups                               ? 3
                                                                              : 2;
      for (const Lengths lengths : {Lengths{64, 64}, Lengths{83, 83}, Lengths{41, 75}, Lengths{75, 41}}) {
        for (const bool causal : {false, true}) {
          AttentionProblem problem;
          problem.heads_kv = heads_kv;
          problem.heads = lengths.q == 64 ? heads_kv : 2 * heads_kv;
          problem.batch = lengths.q == 41 ? 2 : 1;
          problem.seqlen_q = lengths.q;
          problem.seqlen_k = lengths.k;
          problem.head_dim = 16;
          problem.dtype = causal ? ElementType::bf16 : ElementType::fp32;
          problem.causal = causal;
          cases.push_back({problem, {schedule, p}});
        }
      }
    }
  }
  return cases;
}

inline std::string describe(const DistributedCase& c) {
  return std::string(to_string(c.options.schedule)) + " on " + std::to_string(c.options.ranks) + ": " +
         tilescope::describe(c.problem);
}

}  // namespace tilescope::testing
