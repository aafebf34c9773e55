// SPDX-License-Identifier: Apache-2.0
// A thread's part of a tile in slow memory before a step changes it: fetched before the step's product, which
// hides the trip.
#pragma once

#include "gpu/primitives/cuda_cores/product.cuh"

namespace tilescope::cuda_cores {

template <typename Tile>
struct RowsBefore {
  float4 x[Tile::kRowsHere][Tile::kQuadsHere];

  __device__ RowsBefore(Lane lane, const GlobalRows<float>& source) {
    const bool quads = source.quads();
#pragma unroll
    for (int i = 0; i < Tile::kRowsHere; ++i) {
#pragma unroll
      for (int q = 0; q < Tile::kQuadsHere; ++q) {
        const int row = Tile::row(lane, i), col = Tile::col(lane, 4 * q);
        x[i][q] = quads ? load_raw(source, row, col) : load_quad(source, row, col);
      }
    }
  }
};

}  // namespace tilescope::cuda_cores
