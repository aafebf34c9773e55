// SPDX-License-Identifier: Apache-2.0
// Moves registers between the warpgroups of a CTA: what producers give up, consumers take.
#pragma once

namespace tilescope::gpu::sm90 {

/// All warps of a warpgroup alike. kRegisters a thread: a multiple of 8, from 24 to 256.
template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
/// Waits until they are free.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tilescope::gpu::sm90
