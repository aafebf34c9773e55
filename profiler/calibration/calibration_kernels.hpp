// SPDX-License-Identifier: Apache-2.0
// Kernels that move a known number of bytes, one for each path between the SMs and memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

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

}  // namespace tilescope
