// SPDX-License-Identifier: Apache-2.0
// A problem's score modifiers on the tiles of a CTA, and its learned sinks on the rows.
#pragma once

#include <vector>

#include "cpu_ref/primitives/score_tile.hpp"
#include "cpu_ref/schedule/score_mods.hpp"

namespace tilescope {

class TileScoreMods {
 public:
  explicit TileScoreMods(const TileProgram& program);
  /// Loads the numbers of the CTA's heads, as the program's prologue has it.
  void load(Cta& cta, const TileCoord& owned);
  bool change_gradients() const { return change_gradients_; }
  /// scores become f(scores); `derivatives`, where asked for, f' of what they were.
  /// @param unit  a scaled score is unit * score
  void apply(const ScoreTile& place, double unit, Tile& scores, Tile* derivatives = nullptr) const;

 private:
  ScoreMods mods_;
  bool change_scores_, change_gradients_;
  int heads_;  // of the problem
  int first_head_ = 0;
  std::vector<float> alibi_slopes_;  // from first_head_ on
};

/// What the rows of a CTA begin with.
class RowStates {
 public:
  explicit RowStates(const TileProgram& program);
  /// row_max = -inf and row_sum = 0. Where the program begins with sinks: row_max = sink and row_sum = 1.
  /// @param unit  a scaled score is unit * score  @param one  what row_sum has for 1
  void begin(Cta& cta, const TileCoord& owned, double unit, float one, float* row_max, float* row_sum);

 private:
  bool sinks_;
  std::size_t rows_;  // of a tile, padded
  std::vector<float> of_heads_;
};

/// A sink's part of the softmax of a row: exp(sink - lse).
float sink_probability(float sink, float lse);
/// The part of a tile's rows in the gradient of their head's sink: - sum of sink_probability * delta.
float sink_gradient(float sink, const float* lse, const float* delta, int rows);

}  // namespace tilescope
