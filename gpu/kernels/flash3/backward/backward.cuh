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
#include "gpu/kernels/flash3/backward/keys.cuh"
#include "gpu/kernels/flash3/backward/specialised.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"

namespace tilescope::gpu {
namespace detail {

/// By one thread, before the others begin.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void init_barriers(const Flash3BackwardShared<kShape>& shared) {
  sm90::init_barrier(shared.k_full(), 1);
  sm90::init_barrier(shared.v_full(), 1);
  sm90::init_barrier(shared.kv_empty(), kShape.warps());
  for (int stage = 0; stage < kShape.q_stages; ++stage) {
    sm90::init_barrier(shared.q_full(stage), 1 + 32);  // the copies, and who brings LSE
    sm90::init_barrier(shared.q_empty(stage), 32 * kShape.warps());
  }
  for (int stage = 0; stage < kShape.dout_stages; ++stage) {
    sm90::init_barrier(shared.dout_full(stage), 1 + 32);
    sm90::init_barrier(shared.dout_empty(stage), 32 * kShape.warps());
  }
  for (int stage = 0; stage < kShape.ds_stages(); ++stage) {
    sm90::init_barrier(shared.ds_full(stage), kShape.specialised() ? 4 : kShape.warps());  // who stores dS
    sm90::init_barrier(shared.ds_empty(stage), kShape.warps());
  }
  if constexpr (kShape.specialised()) {
    sm90::init_barrier(shared.probs_full(), 128);
    sm90::init_barrier(shared.probs_empty(), 128);
  } else if constexpr (kShape.by_columns()) {
    sm90::init_barrier(shared.probs_full(), kShape.warps());
    sm90::init_barrier(shared.probs_empty(), kShape.warps());
  }
  for (int group = 0; group < kShape.consumers(); ++group) {
    for (int stage = 0; stage < kShape.dq_stages(); ++stage) {
      sm90::init_barrier(shared.dq_full(group, stage), 4);
      sm90::init_barrier(shared.dq_empty(group, stage), 1);
    }
  }
  sm90::fence_barrier_init();
}

}  // namespace detail

/// CTA: one kv tile of one key/value head; Flash3BackwardShape::persistent: one after the other. Grid:
/// args.grid, or as many as run at once. Dynamic shared memory: Flash3BackwardLayout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_dkdvdq(const __grid_constant__ Flash3BackwardArguments args) {
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
    if (kShape.senders() > 1 && thread == 96) detail::send_dq<kShape, 1>(args, shared);
    if (thread == 127) watchdog.watch(kShape.threads() - 128);
  } else {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    sm90::take_registers<kShape.consumer_registers()>();
    if constexpr (kShape.specialised()) {
      detail::consume_specialised<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1,
                                                            thread);
    } else if constexpr (kShape.by_columns()) {
      detail::consume_columns<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1, thread);
    } else {
      detail::consume_keys<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1, thread);
    }
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
