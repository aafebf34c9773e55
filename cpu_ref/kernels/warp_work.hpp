// SPDX-License-Identifier: Apache-2.0
// How the warps of a GPU kernel's CTA share the work on a visited tile: what a prediction of its time asks of
// a row beside the tile program.
#pragma once

#include <cstdint>
#include <vector>

namespace tilescope {

/// The part of a product that one warp, or one warpgroup, computes: shared memory delivers its left operand
/// for each `cols` columns, and its right one for each `rows` rows.
struct ProductPart {
  int rows = 0;
  int cols = 0;      // 0: the left operand is in registers
  int head_dim = 0;  // that the product is computed for; 0: what the kernel is compiled for
  bool operator==(const ProductPart&) const = default;
};

struct WarpWork {
  int warps = 0;              // of a CTA, that compute; 0: not known
  int in_flight = 1;          // tiles of a warp: 2 where it multiplies one beside its arithmetic of another
  bool ahead = false;         // what a CTA begins a block with arrives while it computes the one before
  int skipping_rows = 0;      // that leave out tiles which they alone do not see; 0: a CTA's rows go together
  bool keeps_maxima = false;  // of scores, forward: looks for new ones only where a tile is masked
  int waits = 1;              // a tile: how often a warp waits for what others did, loading ones among them
  std::int64_t exchanged_bytes = 0;  // a tile, that warps leave in shared memory for others
  bool sums_twice = false;  // forward: what the tensor cores have summed of a tile is added to O by threads
  bool adds_apart = false;  // threads add sums in memory, in pairs, beside no product
  std::vector<ProductPart> products = {};  // of a visited tile, one each
};

}  // namespace tilescope
