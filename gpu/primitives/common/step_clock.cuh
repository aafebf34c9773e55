// SPDX-License-Identifier: Apache-2.0
// Notes when each work item's steps begin. Only kernels that are compiled with TILESCOPE_STEP_CLOCK do
// so, so that those that are timed and counted stay as they are: where registers are short a clock changes
// the loop, and with it the progress of the CTAs. Compare DRAM reads with and without it.
#pragma once

#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/work_item.cuh"

namespace tilescope {

#ifdef TILESCOPE_STEP_CLOCK
/// Called by one thread of a CTA where step number `step` of its work item begins. Reads the SM's own clock,
/// which costs some cycles where the device's costs a microsecond: enough to change which of two CTAs runs
/// ahead.
__device__ inline void note_step(const StepClock& clock, int step, unsigned item) {
  if (clock.notes == nullptr || (step & clock.mask) != 0) return;
  std::uint32_t* row = clock.notes + static_cast<std::int64_t>(item) * clock.stride;
  std::uint32_t cycles;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
  if (step == 0) asm volatile("mov.u32 %0, %%smid;" : "=r"(row[0]));
  row[1 + (step >> clock.log2_every)] = cycles | 1u;  // 0: no note
}
/// The same, called by all threads.
__device__ inline void note_step(const KernelArguments& args, int step, unsigned item = work_item()) {
  if (threadIdx.x == 0) note_step(args.clock, step, item);
}
#else
__device__ inline void note_step(const StepClock&, int, unsigned) {}
__device__ inline void note_step(const KernelArguments&, int, unsigned = 0) {}
#endif

}  // namespace tilescope
