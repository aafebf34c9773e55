// SPDX-License-Identifier: Apache-2.0
// What calls of the CUDA runtime return, as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "profiler/driver/driver_library.hpp"

namespace tilescope {

/// @param what was called, for the message @throws DriverError unless `status` is success
inline void check_runtime(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw DriverError(std::string(what) + ": " + cudaGetErrorName(status));
}

}  // namespace tilescope
