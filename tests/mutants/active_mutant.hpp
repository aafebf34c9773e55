// SPDX-License-Identifier: Apache-2.0
// Which mutant a program of mutants runs; mutated sources ask here.
#pragma once

#include <type_traits>

namespace tilescope {

inline int active_mutant = 0;  // counted from 1; 0: none

#ifdef __CUDACC__
#ifdef TILESCOPE_MUTATED_IN_ONE_SOURCE
static __constant__ int active_mutant_on_device = 0;
#else
extern __constant__ int active_mutant_on_device;
#endif
#define TILESCOPE_MUTANT_SIDES __host__ __device__
#else
#define TILESCOPE_MUTANT_SIDES
#endif

/// Never during constant evaluation, which includes the initialiser of a const integer that would be constant
/// without the mutant.
TILESCOPE_MUTANT_SIDES constexpr bool mutant_active(int mutant) {
  if (std::is_constant_evaluated()) return false;
#ifdef __CUDA_ARCH__
  return active_mutant_on_device == mutant;
#else
  return active_mutant == mutant;
#endif
}

#ifdef __CUDACC__
/// Holds the CTA's last warp up, so that a missing barrier shows.
__device__ __forceinline__ void hold_last_warp() {
  if (threadIdx.x + 32 >= blockDim.x) __nanosleep(100000);
}
#endif

}  // namespace tilescope
