// SPDX-License-Identifier: Apache-2.0
// Kernels that do one thing as fast as the device can, and say how much of it they do.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tilescope {

/// Each touches every byte of `bytes`, a multiple of kStreamGrain, once.
inline constexpr std::int64_t kStreamGrain = 64 * 1024;
void launch_stream_read(const void* source, void* target, std::int64_t bytes, cudaStream_t stream);
void launch_stream_write(void* target, std::int64_t bytes, cudaStream_t stream);

/// Every CTA reads all of a buffer that fits in L2, past L1. `bytes` is a power of two. @returns the bytes
/// that go from L2 to the SMs
std::int64_t launch_l2_read(const void* source, void* target, std::int64_t bytes, int sms,
                            cudaStream_t stream);
/// @returns the bytes that go from shared memory to registers
std::int64_t launch_shared_read(void* target, int sms, cudaStream_t stream);
/// fp32 multiply-adds on the CUDA cores. @returns floating-point operations, two a multiply-add
std::int64_t launch_fp32(void* target, int sms, cudaStream_t stream);

/// Values of either sign below 2 in size, whichever 8- or 16-bit floating-point type the bytes are read as:
/// zeros would draw less power and run faster than data does.
void launch_fill(void* target, std::int64_t bytes, cudaStream_t stream);

}  // namespace tilescope
