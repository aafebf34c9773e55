// SPDX-License-Identifier: Apache-2.0
// Bytes and FLOPs of a pass as exact integers, by formula: sums over the blocks of the owned axis, never over
// tiles. They must equal the sums over the program's accesses, which they do not walk.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// What a pass does to one tensor. [bytes]
struct TensorTraffic {
  TensorName tensor = TensorName::q;
  std::int64_t load_bytes = 0;
  std::int64_t filled_bytes = 0;  // that are read beside them, see Boxes
  std::int64_t store_bytes = 0;   // with what sectors that boxes store in part hold beside them
  std::int64_t reduce_bytes = 0;
  /// The distinct tiles that the pass needs from outside: those it loads or reduces before it stores them.
  std::int64_t compulsory_read_bytes = 0;
  /// The distinct tiles that it stores or reduces.
  std::int64_t compulsory_write_bytes = 0;
  bool operator==(const TensorTraffic&) const = default;
};

/// Traffic of a pass by tensor, in the order of TensorName; tensors that it does not touch are left out.
/// Counts cross the SM<->L2 boundary, the papers' "HBM accesses". Equal to for_each_access, summed.
/// @throws BadInput where a count would overflow 63 bits, as all functions here
std::vector<TensorTraffic> tensor_traffic(const TileProgram& program);

/// The sum over tensors and words; a reduction counts as written at SM<->L2, as the hardware counter does.
ClosedFormBytes closed_form_bytes(const TileProgram& program);

/// FLOPs of the pass's matrix products over the visible (query, key) pairs alone: 2 * head_dim a product.
std::int64_t useful_flops(const TileProgram& program);
/// FLOPs of the pass's matrix products over all that is computed: whole visited tiles, or where those that a
/// mask cuts are cut finer, the parts that it leaves something of; padding and masked entries included.
std::int64_t executed_flops(const TileProgram& program);

/// FLOPs of the direction over visible pairs, by the papers' number of products: 2 forward, 5 backward (S
/// computed again), however many a kernel really executes.
std::int64_t useful_flops(const AttentionProblem& problem, Direction direction);
/// The papers' convention (FlashAttention-2, section 4): 4 * Nq * Nk * D a head forward, half of it with a
/// causal mask, 2.5 times as much backward. Rounded down.
std::int64_t paper_flops(const AttentionProblem& problem, Direction direction);

/// One for each visible pair where the pass computes P from the scores, none elsewhere.
std::int64_t exponentials(const TileProgram& program);

struct ReadWriteBytes {
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
  std::int64_t total() const { return read_bytes + write_bytes; }
  bool operator==(const ReadWriteBytes&) const = default;
};

/// What any implementation must exchange with slow memory, each element once: forward reads q, k, v and
/// writes out and lse; backward reads q, k, v, out, dout and lse and writes dq, dk and dv. Inputs count only
/// the rows that some visible pair needs; outputs count whole.
ReadWriteBytes compulsory_bytes(const AttentionProblem& problem, Direction direction);

}  // namespace tilescope
