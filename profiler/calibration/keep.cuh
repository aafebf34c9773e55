// SPDX-License-Identifier: Apache-2.0
// For kernels that read and have no use for what they read.
#pragma once

namespace tilescope {

/// Stores where a sum that cannot be would ask for it, so that no work is optimised away.
__device__ inline void keep(float sum, void* target) {
  if (sum == 12345.678f) *static_cast<float*>(target) = sum;
}

}  // namespace tilescope
