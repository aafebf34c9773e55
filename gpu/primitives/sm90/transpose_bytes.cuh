// SPDX-License-Identifier: Apache-2.0
// Tiles of bytes, transposed in shared memory by warps: see byte_layout.hpp for the order of what comes out.
#pragma once

#include <cstdint>

#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/stmatrix.cuh"

namespace tilescope::gpu::sm90 {

/// Four 8 x 8 blocks of 16-bit elements, each transposed. Lane l gives the address of row l % 8 of block
/// l / 8.
__device__ __forceinline__ void load_blocks_transposed(std::uint32_t address, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

/// Transposes the columns [16 strip, 16 strip + 16) of the tile at `source` (keys x columns) into the rows
/// row_of_column() of the one at `target` (columns x places of keys).
/// @tparam kAtOnce  blocks of 32 keys whose loads are under way together, at four registers each
template <PanelTile kSource, PanelTile kTarget, int kAtOnce>
__device__ __forceinline__ void transpose_strip(std::uint32_t source, std::uint32_t target, int strip,
                                                int lane) {
  static_assert(kSource.element_bytes == 1 && kTarget.rows == kSource.cols && kTarget.cols == kSource.rows);
  constexpr int kBlocks = kSource.rows / 32;
  const Entry from = transposed_source(lane), to = transposed_target(lane);
#pragma unroll
  for (int first = 0; first < kBlocks; first += kAtOnce) {
    std::uint32_t x[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < kBlocks; ++i) {
      load_blocks_transposed(source + kSource.offset(32 * (first + i) + from.row, 16 * strip), x[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce && first + i < kBlocks; ++i) {
      const std::uint32_t(&y)[4] = x[i];
      store_blocks(target + kTarget.offset(16 * strip + to.row, 32 * (first + i) + to.col),
                   __byte_perm(y[0], y[1], kEvenBytes), __byte_perm(y[2], y[3], kEvenBytes),
                   __byte_perm(y[0], y[1], kOddBytes), __byte_perm(y[2], y[3], kOddBytes));
    }
  }
}

}  // namespace tilescope::gpu::sm90
