// SPDX-License-Identifier: Apache-2.0
// The transposing side of flash3's forward pass in fp8: three warps between the copy engine, which brings V
// as it lies in memory, and the WGMMAs, which take it along its keys.
#pragma once

#include "gpu/kernels/flash3/fp8/arguments.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/transpose_bytes.cuh"

namespace tilescope::gpu::detail {

/// Tells the transposing warps that the next tile never comes. @param v  the loading thread's side
template <typename Pipe>
__device__ __forceinline__ void end_transposing(const Pipe& v, volatile int* last) {
  v.wait_empty("the end of V");
  last[v.stage()] = 1;
  sm90::arrive(v.full());
}

/// A warp's share of every tile of V.
template <Flash3Fp8Shape kShape>
__device__ __forceinline__ void transpose(Flash3Fp8Shared<kShape> shared, const volatile int* last,
                                          int warp) {
  constexpr sm90::PanelTile kSource = kShape.kv_tile(), kTarget = kShape.transposed_tile();
  constexpr int kAtOnce = kShape.producer_registers() < 40 ? 2 : 4;
  auto raw = shared.v();
  auto done = shared.transposed();
  for (;;) {
    raw.wait_full("a V to transpose");
    int lane;  // read anew for each tile: the addresses that come of it would take registers in between
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    // Read by the lane that gives the buffer back: its own arrival is before the word is written.
    if (__any_sync(0xFFFFFFFFu, lane == 0 && last[raw.stage()] != 0)) return;
    done.wait_empty("a free transposed V");
#pragma unroll 1
    for (int strip = warp; strip < kShape.head_dim / 16; strip += kShape.transposing_warps()) {
      sm90::transpose_strip<kSource, kTarget, kAtOnce>(raw.buffer(), done.buffer(), strip, lane);
    }
    // Its reads before the copy engine's next write, its writes before the WGMMAs' reads.
    sm90::fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      sm90::arrive(raw.empty());
      sm90::arrive(done.full());
    }
    raw.advance();
    done.advance();
  }
}

}  // namespace tilescope::gpu::detail
