// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products of attention, from K step to K step: what warp_gemm.cuh is to sm_80.
#pragma once

#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::sm90 {

/// A tile in shared memory, or a part of one, as an operand: which of its indices is K says kMajor.
template <PanelTile kTile, Major kMajor>
struct TileOperand {
  Operand first;

  __device__ __forceinline__ explicit TileOperand(std::uint32_t address) : first(kTile, kMajor, address) {}
  /// The descriptor of K step `step`.
  __device__ __forceinline__ std::uint64_t at(int step) const {
    return first.at(k_step(kTile, kMajor, step));
  }
};

/// d += A B^T (d = A B^T if not `accumulate`) over kDepth of K; A, 64 rows, and B from shared memory.
/// @tparam kAccumulate  whether d holds a sum already
template <WgmmaType kType, int kDepth, bool kAccumulate, int kCount, PanelTile kA, Major kMajorA,
          PanelTile kB, Major kMajorB>
__device__ __forceinline__ void gemm(float (&d)[kCount], const TileOperand<kA, kMajorA>& a,
                                     const TileOperand<kB, kMajorB>& b) {
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    multiply<2 * kCount, kType, kMajorA, kMajorB>(d, a.at(step), b.at(step), kAccumulate || step > 0);
  }
}

/// d += A B^T, A from registers: an accumulator that pack_operands() has rounded.
template <WgmmaType kType, int kCount, int kPairs, PanelTile kB, Major kMajorB>
__device__ __forceinline__ void gemm(float (&d)[kCount], const std::uint32_t (&a)[kPairs],
                                     const TileOperand<kB, kMajorB>& b) {
#pragma unroll
  for (int step = 0; step < kPairs / 4; ++step) {
    multiply<2 * kCount, kType, kMajorB>(d, a + 4 * step, b.at(step), true);
  }
}

}  // namespace tilescope::gpu::sm90
