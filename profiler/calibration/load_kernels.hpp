// SPDX-License-Identifier: Apache-2.0
// Kernels that keep a device at one kind of work for a given time, and then have read nothing from DRAM, or
// one footprint once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tilescope {

/// One warp sleeps.
void launch_sleep(std::int64_t nanoseconds, cudaStream_t stream);

/// All SMs multiply and add fp32 values in registers. @param target of 4 bytes in device memory, not written
void launch_compute(void* target, int sms, std::int64_t nanoseconds, cudaStream_t stream);

inline constexpr int kRewritingCtas = 8;
inline constexpr std::int64_t kRewriteGrain = kRewritingCtas * 1024 * 4 * 16;  // [bytes]

/// kRewritingCtas CTAs read and write a buffer past L1 again and again, each a share of its own, and at least
/// once. @param data fp32 values @param bytes a multiple of kRewriteGrain; where L2 keeps them, they come
/// from DRAM once
void launch_rewrite(void* data, std::int64_t bytes, std::int64_t nanoseconds, cudaStream_t stream);

}  // namespace tilescope
