// SPDX-License-Identifier: Apache-2.0
// Sums of an ordered backward pass that lie beside one another in memory, and are added up when they are
// rounded: nobody waits for whoever has another slot, and a fixed order of slots gives the same bits every
// time. Source: the deterministic backward pass of FlashAttention-2, which has such sums of dQ.
#pragma once

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Slots of a q tile's dQ, which the kv tiles that it sees take by turns, so that kv tiles that are computed
/// at once have others: the first one in a slot stores, and those behind it add in their order.
struct DqSlots {
  static constexpr int kOwn = 30;  // each kv tile has one
  int count = 1;
  int log2_count = 0;  // or kOwn

  /// Of a kv tile that has so many in front of it.
  TILESCOPE_HOST_DEVICE constexpr int slot(int before) const { return before & ((1 << log2_count) - 1); }
  /// Those in front of it that it waits for.
  TILESCOPE_HOST_DEVICE constexpr int before_in_slot(int before) const { return before >> log2_count; }
  /// How many hold something, of a q tile that sees so many kv tiles.
  TILESCOPE_HOST_DEVICE constexpr int filled(int kv_tiles) const {
    return kv_tiles < count ? kv_tiles : count;
  }
  /// Whether some kv tile waits for another.
  constexpr bool in_turn() const { return log2_count < kOwn; }
  constexpr bool operator==(const DqSlots&) const = default;
};

/// As many as pay, and no more than a stated limit of bytes: of few queries that see many keys some, since
/// few kv tiles can add to dQ at once, else one; of a mask beside a band one.
DqSlots dq_slots(const AttentionProblem& problem, TileShape tile);
/// Of the pass that makes the sums, or rounds those of several slots; one elsewhere.
DqSlots dq_slots(const TileProgram& program);
/// What the CTAs that share a kv tile store their sums of dK and dV to: each to its own, in the order of the
/// query heads and then of the queries. 0 where they do not.
int sum_slot_of(const TileProgram& program, const CtaWork& work);

/// Whether a pass rounds sums of several slots, which are its inner tiles. On the kv axis splits.tiles is
/// their number; on the q axis how many of its blocks make a q tile of the pass before it.
bool adds_slots(const TileProgram& program);
/// Those that hold something of a block of a pass that adds them up.
int filled_slots(const TileProgram& program, const Mask& mask, int block);
/// How many slots of a tensor the program's pass knows; 1 of tensors without.
int slots_of(const TileProgram& program, TensorName tensor);
/// The slot of partial results or sums that is accessed at a tile; 0 of tensors without.
int slot_at(const TileProgram& program, TensorName tensor, int batch, int m_block, int n_block);
/// The extent with which a tensor is allocated for all passes.
TensorExtent extent_in(const std::vector<TileProgram>& programs, TensorName tensor);

}  // namespace tilescope
