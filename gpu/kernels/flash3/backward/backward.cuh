// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, fused backward (dK, dV and dQ in one pass): FlashAttention-3 for Hopper (sm_90a), fp16 and
// bf16.
//
// Against gpu:flash2-mma: as in the forward pass; besides, scores are computed transposed, so that P and dS
// are left operands of dV and dK, up to head_dim 128 straight from registers, and dQ leaves by the copy
// engine's additions, which a warp asks for that computes nothing. Source: FlashAttention-3,
// arXiv:2407.08608, section B.1; FlashAttention-2, arXiv:2307.08691, Algorithm 2.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/backward/columns.cuh"
#include "gpu/kernels/flash3/backward/halves.cuh"
#include "gpu/kernels/flash3/backward/producer.cuh"
#include "gpu/kernels/flash3/backward/specialised.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"

namespace tilescope::gpu {
namespace detail {

/// By one thread, before the others begin.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void init_barriers(const Flash3BackwardShared<kShape>& shared) {
  sm90::init_barrier(shared.k().full(), 1);
  sm90::init_barrier(shared.v().full(), 1);
  sm90::init_barrier(shared.k().empty(), kShape.warps());
  shared.q().init(1 + 32, 32 * kShape.warps());  // the copies, and who brings LSE
  shared.dout().init(1 + 32, 32 * kShape.warps());
  shared.ds().init(kShape.specialised() ? 4 : kShape.warps(),
                   4 * kShape.dq_groups());  // who stores dS, who reads it
  if constexpr (kShape.specialised()) {
    shared.probs().init(128, 128);
  } else if constexpr (kShape.by_columns()) {
    shared.probs().init(kShape.warps(), kShape.warps());
  }
  shared.dq(0).init(4, 1);
  if constexpr (kShape.tables) {
    shared.visits().init(1, 32 + kShape.senders());  // who asks; who brings LSE, and who sends dQ
    sm90::init_barrier(shared.visit_count(), 1);
  }
  sm90::fence_barrier_init();
}

}  // namespace detail

/// CTA: one kv tile of one key/value head; Flash3BackwardShape::persistent: one after the other. Grid:
/// args.grid, or as many as run at once. Dynamic shared memory: Flash3BackwardLayout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(), 1) void flash3_dkdvdq(
    const __grid_constant__ Flash3BackwardArgumentsOf<Choice::shape.tables> args) {
  constexpr Flash3BackwardShape kShape = kObserved ? Choice::shape.together() : Choice::shape;
  static_assert(Flash3BackwardLayout(kShape).end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3BackwardShared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  sm90::let_next_kernel_begin();
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map :
         {&args.k, &args.v, &args.q, &args.dout, &args.dq_accum, &args.dk, &args.dv}) {
      sm90::prefetch_map(*map);
    }
    detail::init_barriers<kShape>(shared);
  }
  __syncthreads();
  sm90::wait_for_kernel_before();
  if (warpgroup == 0) {
    const int thread = computed_again(static_cast<int>(threadIdx.x));
    sm90::give_up_registers<kShape.producer_registers()>();
    const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
    if (thread == 0) detail::produce_tiles<kShape>(args, shared);
    if (warp == 1) detail::produce_lse_and_delta<kShape>(args, shared, shared_bytes);
    if (thread == 64) detail::send_dq<kShape, 0>(args, shared);
    if constexpr (kShape.senders() > 1) {
      if (thread == 96) detail::send_dq<kShape, 1>(args, shared);
    }
    if (thread == 127) watchdog.watch(kShape.threads() - 128);
  } else {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    sm90::take_registers<kShape.consumer_registers()>();
    if constexpr (kShape.specialised()) {
      detail::consume_specialised<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1,
                                                            thread);
    } else if constexpr (kShape.by_columns()) {
      detail::consume_columns<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1, thread);
    } else if constexpr (kShape.halves) {
      detail::consume_halves<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1, thread);
    } else {
      detail::consume_keys<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1, thread);
    }
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
