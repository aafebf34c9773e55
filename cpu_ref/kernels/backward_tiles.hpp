// SPDX-License-Identifier: Apache-2.0
// What the backward passes of flash1 and flash2 share.
#pragma once

#include "cpu_ref/primitives/kernel_scale.hpp"
#include "cpu_ref/primitives/score_tile.hpp"
#include "cpu_ref/primitives/tile_score_mods.hpp"

namespace tilescope {

/// The pointwise middle of a backward step: P and dS of one tile, either way round.
class BackwardTiles {
 public:
  explicit BackwardTiles(const TileProgram& program);

  /// Loads what the modifiers need of the CTA's heads.
  void load(Cta& cta, const TileCoord& owned) { score_mods_.load(cta, owned); }
  /// probs: S to P = exp(f(S) - LSE), fp32.
  void probs_from_lse(const ScoreTile& place, bool full, const float* lse_log2, TileState* state);
  /// dscores: dP, over the parts of a tile; 0 elsewhere, where P is.
  void multiply_dprobs(const TileParts& parts, const TileView& streamed, const TileView& owned_transposed);
  /// dscores: dP to dS = P * (dP - delta) * f'(S), rounded; probs: P to the factor of dO, dropped and
  /// rounded.
  void gradient(const ScoreTile& place, const float* delta, TileState* state);

  KernelScale scale;
  Tile probs;    // S, then P, then P as it enters dV
  Tile dscores;  // dP, then dS

 private:
  ElementType dtype_;
  int value_dim_;
  bool cuts_tiles_;
  TileScoreMods score_mods_;
  DropoutMask dropout_;
  Tile factors_, derivatives_;
};

/// lse to lse * log2(e); a row that saw no key (lse = -inf) gets +inf, which makes its P 0.
void to_lse_log2(float* lse, int queries);
/// dots[i] = sum of a(i, j) * b(i, j), in fp32.
void row_dots(const TileView& a, const TileView& b, int rows, int cols, float* dots);

/// Pass init: zeroes the sums that later CTAs reduce into.
class StoreZeros {
 public:
  explicit StoreZeros(const TileProgram& program);
  void operator()(Cta& cta);

 private:
  Tile zeros_;
};

/// Pass convert: fp32 sums to the element type; those of dq and dk take the softmax scale here.
class ConvertSums {
 public:
  explicit ConvertSums(const TileProgram& program);
  void operator()(Cta& cta);

 private:
  static const std::vector<Operand>& loads_of(const TileProgram& program);
  /// A slot to tiles_[i], which are scaled behind the last.
  void add(Cta& cta, std::size_t i, int slot, bool last);

  float scale_;
  std::vector<Tile> tiles_;  // one an operand
  Tile slot_;                // of sums, where several are added
};

}  // namespace tilescope
