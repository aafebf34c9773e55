// SPDX-License-Identifier: Apache-2.0
// What the clocks of SMs say of a pass without a change to its code. Each GPC has a clock of its own; where
// power keeps them below the highest, no two are quite the same.
#pragma once

#include <cuda_runtime.h>

namespace tilescope {

/// A moment on an SM's own clock and on the device's.
struct SmMoment {
  long long cycles = 0, nanoseconds = 0;
};

inline constexpr int kMostSmIds = 1024;

/// In device memory, zero at first.
struct SmMoments {
  SmMoment of_sm[kMostSmIds];  // by SM id; the others stay as they are
  int arrived;                 // SMs
};

/// Notes the moment at which each SM comes to it: in stream order, and in another stream than a kernel that
/// has all SMs, when the last CTA that an SM has of it ends.
/// @throws DeviceError
void note_moments(SmMoments* moments, cudaStream_t stream);

}  // namespace tilescope
