// SPDX-License-Identifier: Apache-2.0
// Kernels that find out how a device is built: what its L2 keeps, which SMs stand beside which partition of
// it, and in which order SMs are given CTAs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tilescope {

/// How a kernel goes over a buffer: every SM reads all of it, those beside one partition of the L2 do, or
/// each has a share of its own, which it reads or adds zeros to.
enum class L2Access { read_by_all, read_by_one, reduced_by_one, read_by_partition };

inline constexpr std::int64_t kL2Chunk = 16 * 1024;  // bytes that a CTA touches at once

/// What launch_l2_rounds goes over. The arrays lie in device memory.
struct L2Footprint {
  void* data = nullptr;                    // fp32 values
  std::int64_t bytes = 0;                  // a multiple of kL2Chunk
  const std::int32_t* chunk_at = nullptr;  // (bytes / kL2Chunk,) places in chunks; null: side by side
  const std::int32_t* partition_of_sm =
      nullptr;  // by SM id; for read_by_partition, which only SMs of partition 0 do
};

/// Passes over a footprint, one after the other, with one CTA an SM.
void launch_l2_rounds(L2Access access, const L2Footprint& footprint, int rounds, int sms,
                      cudaStream_t stream);

/// Writes the id of the SM that each CTA runs on. Of CTAs with more than half of an SM's shared memory each
/// SM holds one, and all stay until every SM has its own. @param sm_of_cta (ctas,)
/// @param shared_bytes of a CTA @throws DriverError if that is more than one can have
void launch_sm_ids(std::int32_t* sm_of_cta, int ctas, int shared_bytes, cudaStream_t stream);

inline constexpr std::int64_t kLatencyStride = 5 * 4096 + 128;  // homes of lines change every 4 KiB

/// One thread on the SM of that id times atomics to one line after the other, each atomic waiting for the one
/// before it; the other SMs do nothing. @param lines zeros, kLatencyStride bytes from one to the next
/// @param clocks (count,) of one atomic, the mean of several @param shared_bytes as above
void launch_atomic_latency(std::uint32_t* lines, int count, int sm, std::uint32_t* clocks, int sms,
                           int shared_bytes, cudaStream_t stream);

}  // namespace tilescope
