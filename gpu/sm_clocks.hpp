// SPDX-License-Identifier: Apache-2.0
// The clocks of SMs. Each GPC has one of its own; where power keeps them below the highest, no two are quite
// the same.
#pragma once

#include <cuda_runtime.h>

namespace tilescope {

/// A moment on an SM's own clock and on the device's.
struct SmMoment {
  long long cycles = 0, nanoseconds = 0;
};

inline constexpr int kMostSmIds = 1024;

/// Notes the moment at which each SM comes to it, in stream order.
/// @param of_sm  (kMostSmIds,) by SM id, in device memory; the others stay as they are
/// @throws DeviceError
void note_moments(SmMoment* of_sm, cudaStream_t stream);

}  // namespace tilescope
