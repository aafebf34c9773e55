// SPDX-License-Identifier: Apache-2.0
// Kernels whose bytes and time are known.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tilescope::testing {

inline constexpr std::int64_t kTouchBytes = 1 << 20;

/// Writes kTouchBytes.
void launch_touch(void* target, cudaStream_t stream);
/// Reads `bytes` and writes as many; a multiple of 64 KiB.
void launch_copy(const void* source, void* target, std::int64_t bytes, cudaStream_t stream);
/// Lasts that long on one SM.
void launch_spin(std::int64_t nanoseconds, cudaStream_t stream);

}  // namespace tilescope::testing
