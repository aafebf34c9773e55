// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode on Hopper, forward: one q tile of up to 64 packed rows and a split of its latent keys.
//
// Against mla_forward.cuh: warpgroups multiply by wgmma straight from shared memory, where mma.sync spends
// four of five instructions on operands; and warps load that do nothing else. See NOTES.md.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/consumers.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"

namespace tilescope::mla_wgmma {

/// A warp a part of a stage.
template <bool kPaged>
__device__ __forceinline__ void load_keys(const KernelArguments& args, const CtaTile& cta,
                                          const Shared& shared, int warp, int lane) {
  const int stage = warp / Shape::kParts;
  if (warp % Shape::kParts == 0) {
    Loader<kPaged, 0>{args, cta, shared, stage, lane}.run();
  } else {
    Loader<kPaged, 1>{args, cta, shared, stage, lane}.run();
  }
}

/// CTA: one split of the keys of one q tile. Grid: args.grid. Dynamic shared memory: MlaWgmmaShape.
template <WgmmaType kType, bool kPaged, bool kObserved>
__global__ __launch_bounds__(Shape::kThreads,
                             1) void mla_wgmma_forward(const __grid_constant__ KernelArguments args,
                                                       const __grid_constant__ DecodeArguments decode,
                                                       int block_m) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const Shared shared{bytes, shared_address_of(bytes)};
  let_next_kernel_begin();
  const Watchdog watchdog = gpu::sm90::watchdog();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      for (int part = 0; part < Shape::kParts; ++part) {
        init_barrier(shared.full(stage, part), 1);
        init_barrier(shared.empty(stage, part), 4);
      }
    }
    fence_barrier_init();
  }
  __syncthreads();
  const CtaTile cta(args, decode, block_m);
  // From one lane to all: the compiler then knows that a warp agrees.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  if (warp < 4) {
    give_up_registers<Shape::kLoaderRegisters>();
    load_keys<kPaged>(args, cta, shared, warp, lane);
    if (threadIdx.x == 127) watchdog.watch(Shape::kConsumerThreads);
    return;
  }
  take_registers<Shape::kConsumerRegisters>();
  if (!cta.range.empty()) {
    load_q(args, cta, shared, static_cast<int>(threadIdx.x) - 128);
    commit_copies();
    wait_for_copies<0>();
    fence_async_proxy();
    sync_named(kAllComputing, Shape::kConsumerThreads);
  }
  const int part = warp / 4 - 1;
  const Consumer<kType, kObserved> consumer{args, decode, cta, shared, part, thread};
  if (part == 0) {
    ScoreConsumer<kType, kObserved>(consumer).run();
  } else {
    ValueConsumer<kType, kObserved>(consumer).run();
  }
  watchdog.say_done();
}

}  // namespace tilescope::mla_wgmma
