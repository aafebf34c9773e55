// SPDX-License-Identifier: Apache-2.0
// What no implementation of exact attention can do without: lower bounds on its traffic, with their
// conditions.
#pragma once

#include <cstdint>

#include "analysis/model/machine/machine.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// `processors` alike, each with a private fast memory, that share one slow memory. The bounds hold only if
/// `bytes_per_processor` counts everything that can hold an operand, registers included: GPU kernels keep O,
/// S, P and often Q there.
struct FastMemory {
  std::int64_t processors = 1;
  std::int64_t bytes_per_processor = 0;
};

/// The SMs before the L2: bounds SM<->L2 traffic.
FastMemory sm_memory(const Machine& machine);
/// The whole chip before DRAM, as one processor: L2 and all SMs. Bounds DRAM traffic.
FastMemory chip_memory(const Machine& machine);

/// Reads that every exact algorithm needs which forms scores by standard products, from the pebble-game
/// argument of Hong and Kung (STOC 1981), after Saha and Ye (arXiv:2402.07443), here with explicit constants:
///
///   reads >= T min(d^2 / M, 1/2) - p M   [elements]
///
/// for T score entries, each the sum of d products, on p processors with M elements of fast memory each.
///
/// Conditions: the inputs start in slow memory; an entry (i, j) is computed as sum_k Q_ik K_jk, in any order
/// and association, and as often as one likes (recomputation is allowed); partial sums are at least as wide
/// as inputs. Nothing is assumed about V, the softmax or the outputs, so the bound counts reads of Q and K
/// alone.
///
/// Proof: reports/io_complexity.md, appendix.
///
/// Entries of several kinds, of d_k products each, add up to sum of T_k min(d_k^2 / M, 1/2) - p M: what a
/// segment can hold of inputs is shared between the kinds, and a sum of squares is largest where one has all.
///
/// @return elements, below 0 where the bound says nothing
double score_read_bound(double score_entries, double head_dim, double fast_elements, double processors);

/// Entries that the direction must form by products of inputs: S in a forward pass; S and dP = dO V^T in a
/// backward pass, or dP alone when P is given to it (standard attention). Masked entries need not be formed.
struct FormedEntries {
  std::int64_t scores = 0, dprobs = 0;  // sums of head_dim products, and of as many as values have columns
};
FormedEntries formed_entries(const AttentionProblem& problem, Direction direction, Algorithm algorithm);

/// The bounds on the reads of one direction at one boundary. [bytes]
struct ReadBound {
  std::int64_t compulsory_bytes = 0;  // each needed input once, see compulsory_bytes()
  std::int64_t score_bytes = 0;       // score_read_bound with the inputs' width, 0 where it is below 0
  bool score_bound_vacuous() const { return score_bytes <= compulsory_bytes; }
  std::int64_t bytes() const { return score_bound_vacuous() ? compulsory_bytes : score_bytes; }
};
ReadBound read_bound(const AttentionProblem& problem, Direction direction, Algorithm algorithm,
                     const FastMemory& memory);

}  // namespace tilescope
