// SPDX-License-Identifier: Apache-2.0
// Against registers that hold what is cheaper to compute again.
#pragma once

namespace tilescope {

/// A number that ptxas takes for a new one, so that what is computed from it is computed where it is written,
/// not kept in registers round a loop: addresses of swizzled tiles, above all, and indices of rare paths.
__device__ __forceinline__ int computed_again(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace tilescope
