// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, forward: FlashAttention-3 for Hopper (sm_90a), fp16 and bf16, head_dim a multiple of 8 up to
// 256, masks, grouped heads.
//
// Against gpu:flash2-mma: the copy engine (TMA) loads whole tiles for one thread that
// does nothing else; warpgroups multiply by wgmma straight from shared memory, without registers or
// instructions for the operands; WGMMAs run while the same warpgroup (next S beside this P V) and the
// others (ping-pong) are at their softmax; persistent CTAs take one tile after the other, and load the next
// while they end this one. That should win about twice the rate: 360 TFLOP/s were 0.4 of the tensor cores at
// head_dim 128; 752 are 0.86 of them at the clock that power leaves (1.58 GHz). The rest is a warpgroup's
// chain of one step. Source: FlashAttention-3, arXiv:2407.08608, Algorithms 1 and 2.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/forward/consumer.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"

namespace tilescope::gpu {
namespace detail {

/// Loads make 1 arrival a warp that loads and their bytes; releases one a warp, those of Q one a thread.
/// @param consumers  warpgroups that compute
template <auto kShape, typename Shared>
__device__ __forceinline__ void init_q_and_k(Shared shared, int consumers) {
  shared.q().init(1, sm90::kWarpgroupThreads * consumers / kShape.row_groups());
  shared.k().init(kShape.paged ? kFlash3PageLoaders : 1, 4 * consumers);
}

}  // namespace detail

/// CTA: one q tile after the other, from the counter. Grid: as many as run at once. Dynamic shared memory:
/// Flash3ForwardLayout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(), 1) void flash3_forward(
    const __grid_constant__ Flash3ArgumentsOf<Choice::shape.mods, Choice::shape.paged> args) {
  constexpr Flash3ForwardShape kShape = Choice::shape;
  constexpr Flash3ForwardLayout kLayout(kShape);
  static_assert(kLayout.end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3Shared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  auto* items = reinterpret_cast<Flash3Item*>(shared_bytes + kLayout.items);

  // From one lane to all: the compiler then knows that a warp agrees.
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  sm90::let_next_kernel_begin();
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    sm90::prefetch_map(args.q);
    sm90::prefetch_map(args.k);
    sm90::prefetch_map(args.v);
    sm90::prefetch_map(args.out);
    detail::init_q_and_k<kShape>(shared, kShape.consumers());
    shared.v().init(kShape.paged ? kFlash3PageLoaders : 1, 4 * kShape.consumers());
    if constexpr (kShape.splits_keys) shared.part().init(sm90::kWarpgroupThreads, sm90::kWarpgroupThreads);
    sm90::fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    sm90::give_up_registers<kShape.producer_registers()>();
    constexpr unsigned kLoading = kShape.paged ? sm90::kWarpgroupThreads : 1;
    if (threadIdx.x < kLoading) detail::produce<kShape>(args, shared, items);
    if (threadIdx.x == 127) watchdog.watch(kShape.threads() - 128);
  } else {
    sm90::take_registers<kShape.consumer_registers()>();
    detail::Flash3ForwardConsumer<kType, kShape, kObserved>(args, shared, items, warpgroup - 1,
                                                            static_cast<int>(threadIdx.x) % 128)
        .run();
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
