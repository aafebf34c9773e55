// SPDX-License-Identifier: Apache-2.0
// Bytes over the links, payload alone: by enumeration of a program, by formula, and the least of any
// schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// What one rank sends and receives in one pass. [bytes]
struct LinkBytes {
  std::int64_t sent = 0, received = 0;
  LinkBytes& operator+=(const LinkBytes& other);
  bool operator==(const LinkBytes&) const = default;
};

/// By rank: the sum over the program's transfers.
std::vector<LinkBytes> link_traffic(const DistributedProgram& program);

/// By rank, in closed form, for any lengths that the schedule can split. With s_r the bytes of K and V that
/// rank r owns and S their sum, a ring moves S - s_{r+1} out and S - s_r in, and backward the fp32 sums of dK
/// and dV of every shard once more; an all-gather (P - 1) s_r and S - s_r; an all-to-all what of a rank's
/// rows belongs to the heads of others. @throws BadInput as build_distributed
std::vector<LinkBytes> link_closed_form(const AttentionProblem& problem, Direction direction,
                                        const DistributedOptions& options);

/// The least that some rank receives of Q, K and V and sends of O, together, in a forward pass:
///
///   (P - 1) s min(1, (g + 1) / (P + 1)),   s = bytes of the K and V of N / P tokens, g = heads / heads_kv
///
/// Conditions: no mask, equal lengths, each element of Q, K, V and O on one rank, the tokens of all heads
/// spread evenly, every score formed whole on one rank. Then some rank forms at least 1/P of them. For a
/// key/value head with A query rows and C key rows it moves 2 d b (g (A - N/P)+ + (C - N/P)+) for A C scores,
/// which at given work is least at the corners (N/P, N/P), (N/P, N) and (N, N) and mixtures of them.
/// @return nothing where the conditions do not hold
std::optional<double> least_link_bytes(const AttentionProblem& problem, Direction direction, int ranks);

}  // namespace tilescope
