// SPDX-License-Identifier: Apache-2.0
// The check that stands round every CUDA call.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "common/errors.hpp"
#include "gpu/launch/device_error.hpp"

namespace tilescope {

/// @param what the call as a user would name it: "launching gpu:flash2-simt forward".
/// @throws MachineLacks where the driver, a device or memory is missing, DeviceError otherwise.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  const std::string text = what + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status);
  cudaGetLastError();  // clears an error that does not stick, so that the next call starts clean
  switch (status) {
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorMemoryAllocation:
      throw MachineLacks(text);
    default:
      throw DeviceError(text);
  }
}

}  // namespace tilescope
