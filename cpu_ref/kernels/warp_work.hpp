// SPDX-License-Identifier: Apache-2.0
// How the warps of a GPU kernel's CTA share the work on a visited tile: what a prediction of its time asks of
// a row beside the tile program.
#pragma once

#include <vector>

namespace tilescope {

/// The part of a product that one warp, or one warpgroup, computes: shared memory delivers its left operand
/// for each `cols` columns, and its right one for each `rows` rows.
struct ProductPart {
  int rows = 0;
  int cols = 0;  // 0: the left operand is in registers
  bool operator==(const ProductPart&) const = default;
};

struct WarpWork {
  int warps = 0;                     // of a CTA, that compute; 0: not known
  bool asynchronous = false;         // products run beside the arithmetic of the warps that issued them
  std::vector<ProductPart> products = {};  // of a visited tile, one each
};

}  // namespace tilescope
