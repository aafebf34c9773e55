// SPDX-License-Identifier: Apache-2.0
// DropoutMask for a whole tile at once, vectorised.
#pragma once

#include <cstddef>

#include "cpu_ref/numeric/philox.hpp"
#include "cpu_ref/primitives/tile_math.hpp"

namespace tilescope {

/// The part of a score matrix that one tile covers.
struct ScoreRegion {
  int batch_head;  // batch * heads + head, over query heads
  int first_query, queries;
  int first_key, keys;
};

/// factors = keep_scale where the mask keeps an entry, 0 where it drops it.
/// @param factors (keys, queries) or (queries, keys) as `along` says, padded rows, stride in elements
void dropout_factors(const DropoutMask& dropout, const ScoreRegion& region, Queries along, float* factors,
                     std::ptrdiff_t stride);

}  // namespace tilescope
