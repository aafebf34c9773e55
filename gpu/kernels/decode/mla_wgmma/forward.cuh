// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode on Hopper, forward: one q tile of up to 64 packed rows and a split of its latent keys.
//
// Against mla_forward.cuh: warpgroups multiply by wgmma straight from shared memory, where mma.sync spends
// four of five instructions on operands; and warps load that do nothing else. See NOTES.md.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/consumers.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"

namespace tilescope::mla_wgmma {

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
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();
  const CtaTile cta(args, decode, block_m);
  // From one lane to all: the compiler then knows that a warp agrees.
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  if (warpgroup == 0) {
    give_up_registers<Shape::kLoaderRegisters>();
    Loader<kPaged>{args, cta, shared, thread}.run();
    if (threadIdx.x == 127) watchdog.watch(Shape::kConsumerThreads);
    return;
  }
  take_registers<Shape::kConsumerRegisters>();
  if (!cta.range.empty()) {
    load_q(args, cta, shared, static_cast<int>(threadIdx.x) - kWarpgroupThreads);
    commit_copies();
    wait_for_copies<0>();
    fence_async_proxy();
    sync_named(kAllComputing, Shape::kConsumerThreads);
  }
  const int part = warpgroup - 1;
  const Consumer<kType, kObserved> consumer{args, decode, cta, shared, part, thread};
  if (part == 0) {
    ScoreConsumer<kType, kObserved>(consumer).run();
  } else {
    ValueConsumer<kType, kObserved>(consumer).run();
  }
  watchdog.say_done();
}

}  // namespace tilescope::mla_wgmma
