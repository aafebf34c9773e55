// SPDX-License-Identifier: Apache-2.0
// What a distributed program asks of its ranks: work, its balance, and memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

struct RankLoad {
  std::int64_t visible_pairs = 0;  // over all batches and query heads
  std::int64_t launches = 0;
  std::int64_t operand_bytes = 0;   // its share of inputs and results
  std::int64_t received_bytes = 0;  // buffers for blocks of other ranks
  std::int64_t state_bytes = 0;     // fp32 sums and statistics, results before they are given back
  bool operator==(const RankLoad&) const = default;
};
std::vector<RankLoad> rank_loads(const DistributedProgram& program);

/// FLOP of the products over visible pairs: 2 forward, 5 backward.
double useful_flops(Direction direction, std::int64_t visible_pairs, std::int64_t head_dim);

struct Balance {
  double overall = 1;    // mean work of the ranks over the largest
  double lock_step = 1;  // the same where all wait for the slowest in every step
};
Balance balance(const DistributedProgram& program);

/// Tokens a rank from which the link of a ring or an all-gather is hidden behind the launches, where heads
/// and batch are enough to fill a GPU: forward b F / (2 g B), twice that with a causal mask in balance;
/// backward with fp32 sums of dK and dV. F: FLOP a second of one rank, B: bytes a second of one link in one
/// direction.
double least_hidden_tokens(const AttentionProblem& problem, Direction direction, double flops_per_second,
                           double link_bytes_per_second);
/// The same of a program, where that holds: K and V rotate, and each rank has as much to do in every step.
std::optional<double> least_hidden_tokens(const DistributedProgram& program, double flops_per_second,
                                          double link_bytes_per_second);

}  // namespace tilescope
