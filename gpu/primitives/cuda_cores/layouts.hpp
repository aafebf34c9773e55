// SPDX-License-Identifier: Apache-2.0
// Shared memory of the CUDA-core kernels, tiles in fp32. Offsets in floats; a layout's end is its size. Plain
// C++: the kernels take the offsets, the launches and the registry the size.
#pragma once

#include "cpu_ref/kernels/chip.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope::cuda_cores {

/// What a CTA may have on the oldest architecture that the kernels are meant for. [bytes]
inline constexpr int kMaxSharedBytes = static_cast<int>(kSm80.shared_bytes_per_cta);

/// A forward pass: Q, K, V, P, and `row_values` of each query.
struct ForwardLayout {
  TileShape tile;
  int dim = 0, row_values = 0;

  constexpr int q() const { return 0; }
  constexpr int k() const { return tile.block_m * dim; }
  constexpr int v() const { return k() + tile.block_n * dim; }
  constexpr int probs() const { return v() + tile.block_n * dim; }
  constexpr int rows() const { return probs() + tile.block_m * tile.block_n; }
  constexpr int end() const { return rows() + row_values * tile.block_m; }
  constexpr int bytes() const { return 4 * end(); }
};

/// A backward pass: Q, dO, K, V, P, dS, and values of each query.
struct BackwardLayout {
  TileShape tile;
  int dim = 0, values_a_row = 2;  // LSE and delta; or l, delta and m

  constexpr int q() const { return 0; }
  constexpr int dout() const { return tile.block_m * dim; }
  constexpr int k() const { return 2 * tile.block_m * dim; }
  constexpr int v() const { return k() + tile.block_n * dim; }
  constexpr int probs() const { return v() + tile.block_n * dim; }
  constexpr int dscores() const { return probs() + tile.block_m * tile.block_n; }
  constexpr int row_values(int index) const { return dscores() + tile.block_m * (tile.block_n + index); }
  constexpr int end() const { return row_values(values_a_row); }
  constexpr int bytes() const { return 4 * end(); }
};

}  // namespace tilescope::cuda_cores
