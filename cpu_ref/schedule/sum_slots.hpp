// SPDX-License-Identifier: Apache-2.0
// Sums of an ordered backward pass that lie beside one another in memory, and are added up when they are
// rounded: nobody waits for whoever has another slot, and a fixed order of slots gives the same bits every
// time. Source: the deterministic backward pass of FlashAttention-2, which has such sums of dQ.
#pragma once

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Slots of a q tile's dQ. The kv tiles that it sees come in groups of 2^log2_tiles, one after the other in a
/// slot, whose first kv tile stores and whose others add in turn.
struct DqSlots {
  static constexpr int kAllTiles = 30;
  int count = 1;
  int log2_tiles = kAllTiles;

  /// Of a kv tile that has so many in front of it.
  TILESCOPE_HOST_DEVICE constexpr int slot(int before) const { return before >> log2_tiles; }
  /// Those in front of it that it waits for.
  TILESCOPE_HOST_DEVICE constexpr int before_in_slot(int before) const {
    return before & ((1 << log2_tiles) - 1);
  }
  /// How many hold something, of a q tile that sees so many kv tiles.
  constexpr int filled(int kv_tiles) const { return (kv_tiles + (1 << log2_tiles) - 1) >> log2_tiles; }
  /// Whether some kv tile waits for another.
  constexpr bool in_turn() const { return log2_tiles > 0; }
  constexpr bool operator==(const DqSlots&) const = default;
};

/// As many as pay: those that L2 holds, or those whose sums are read in a small part of the time of the
/// products, and no more than a stated limit of bytes; of a mask beside a band one.
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
