// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, forward, fp8: e4m3 and e5m2 in, bf16 out, head_dim a multiple of 16 up to 256.
//
// Against the 16-bit pass: WGMMAs take half the time, exponentials the same, so that at head_dim 128 the
// special function unit is as busy as the tensor cores. Three things are new.
// - V. The tensor cores take bytes along K alone, so that three warps of the loading warpgroup, idle before,
//   transpose each tile of V in shared memory (byte_layout.hpp: no exchange between lanes, no bank twice).
// - Sums. The tensor cores keep 13 bits of a sum of fp8 products (cpu_ref/primitives/fp8_matmul.hpp has the
//   rule, and the mirror sums by it), which long rows feel. So the P V of a kv tile is summed by them, and
//   the tiles in fp32 by whom its registers belong to: O = O factor + part, beside the next S, where a raised
//   maximum's factor costs nothing. Fp8Sums::fast leaves that out.
// - P. e4m3 holds 17 binary orders: P of 1 is kept as 2^5, rescaling waits until a P reaches 448, and two
//   instructions for four P tell.
// A warpgroup's step: wait for K and V; P V of the tile before and S are issued together; O += part beside S;
// softmax, while the other warpgroup multiplies. (The 16-bit pass puts its softmax beside its own P V. That
// takes scores, both P, part and O in registers at once: 224. Fast sums, without a part, do so at 256.)
// Source: FlashAttention-3, arXiv:2407.08608, section 3.3.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/forward/forward.cuh"
#include "gpu/kernels/flash3/fp8/consumer.cuh"
#include "gpu/kernels/flash3/fp8/transpose.cuh"

namespace tilescope::gpu {
namespace detail {

template <Flash3Fp8Shape kShape>
__device__ __forceinline__ void init_fp8_barriers(Flash3Fp8Shared<kShape> shared, int* last) {
  init_q_and_k<kShape>(shared, kShape.consumers());
  shared.transposed().init(kShape.transposing_warps(), kShape.warps());
  const auto v = shared.v();
  for (int stage = 0; stage < kShape.raw_stages; ++stage) {
    sm90::init_barrier(v.full_at(stage), 1);
    sm90::init_barrier(v.empty_at(stage), kShape.transposing_warps());
    last[stage] = 0;
  }
  sm90::fence_barrier_init();
}

}  // namespace detail

/// CTA: one q tile after the other, from the counter. Grid: as many as run at once. Dynamic shared memory:
/// Flash3Fp8Layout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_fp8_forward(const __grid_constant__ Flash3Fp8Arguments args) {
  constexpr Flash3Fp8Shape kShape = Choice::shape;
  constexpr Flash3Fp8Layout kLayout(kShape);
  static_assert(kLayout.end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3Fp8Shared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  auto* items = reinterpret_cast<Flash3Item*>(shared_bytes + kLayout.items);
  auto* last = reinterpret_cast<int*>(shared_bytes + kLayout.last);

  // From one lane to all: the compiler then knows that a warp agrees.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    sm90::prefetch_map(args.q);
    sm90::prefetch_map(args.k);
    sm90::prefetch_map(args.v);
    detail::init_fp8_barriers(shared, last);
  }
  __syncthreads();

  if (warp < 4) {
    sm90::give_up_registers<kShape.producer_registers()>();
    if (warp > 0) {
      detail::transpose(shared, last, warp - 1);
    } else if (threadIdx.x == 0) {
      detail::end_transposing(detail::produce<kShape>(args, shared, items), last);
    } else if (threadIdx.x == 31) {
      watchdog.watch(kShape.threads() - 128);
    }
  } else {
    sm90::take_registers<kShape.consumer_registers()>();
    detail::Flash3Fp8Consumer<kType, kShape, kObserved>(args, shared, items, warp / 4 - 1,
                                                        static_cast<int>(threadIdx.x) % 128)
        .run();
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
