// SPDX-License-Identifier: Apache-2.0
// The kernels that calibration launches.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

// --- Kernels that move a known number of bytes, one for each path between the SMs and memory.

/// Bytes that a kernel is bound to move, from a cold L2 to a clean one.
struct DeclaredBytes {
  std::int64_t sm_l2_read = 0;  // that arrive at SMs
  std::int64_t sm_l2_write = 0, dram_read = 0, dram_write = 0;
  std::int64_t readers = 1;  // SMs at which what leaves L2 once arrives
};

struct CalibrationKernel {
  std::string name;
  DeclaredBytes declared;
  int oldest_compute_capability;  // 80: 8.0
  /// Enqueues one launch. @param source, target device buffers of kCalibrationBytes each
  void (*launch)(const void* source, void* target, cudaStream_t stream);
};

inline constexpr std::int64_t kCalibrationBytes = std::int64_t{256} << 20;

const std::vector<CalibrationKernel>& calibration_kernels();

// --- Kernels that do one thing as fast as the device can, and say how much of it they do.

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

// --- Kernels that keep a device at one kind of work for a given time, and then have read nothing from DRAM,
// or one footprint once.

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

// --- Kernels that move bytes between this GPU and another one's memory, and nothing else.

/// `bytes` is a multiple of 16. Loads of `source`, a peer's memory; `target` takes what keeps them alive.
void launch_link_read(const void* source, void* target, std::int64_t bytes, int ctas, cudaStream_t stream);
/// Stores to `target`, a peer's memory.
void launch_link_write(void* target, std::int64_t bytes, int ctas, cudaStream_t stream);

#ifdef __CUDACC__
/// For kernels that read and have no use for what they read: stores where a sum that cannot be would ask for
/// it, so that no work is optimised away.
__device__ inline void keep(float sum, void* target) {
  if (sum == 12345.678f) *static_cast<float*>(target) = sum;
}
#endif

}  // namespace tilescope
