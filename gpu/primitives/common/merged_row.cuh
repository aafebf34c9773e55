// SPDX-License-Identifier: Apache-2.0
// FlashAttention-1's step for one row: its O is normalised at each tile. Source: FlashAttention, Algorithm 1.
#pragma once

#include "gpu/primitives/common/score.cuh"

namespace tilescope {

/// A row of a tile's P: the tile's own maximum, to which it is relative, and its sum.
struct TileRow {
  float max, sum;
};

/// l and m of a row after a tile, and what O after it has of O before and of the tile's own P V. Lines 11
/// and 12.
struct MergedRow {
  float max, sum;
  float old_share, tile_share;

  __device__ MergedRow(const TileRow& tile, float old_max, float old_sum, float scale)
      : max(old_max), sum(old_sum), old_share(1.0f), tile_share(0.0f) {
    if (tile.sum == 0.0f) return;  // the row sees no key of this tile
    max = fmaxf(old_max, tile.max);
    const float shift = exponent_shift<true>(max, scale);
    const float old_weight = old_sum == 0.0f ? 0.0f : old_sum * rescale_factor(old_max, scale, shift);
    const float tile_weight = rescale_factor(tile.max, scale, shift);
    sum = fmaf(tile_weight, tile.sum, old_weight);
    old_share = old_weight / sum;
    tile_share = tile_weight / sum;
  }
};

}  // namespace tilescope
