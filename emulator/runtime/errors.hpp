// SPDX-License-Identifier: Apache-2.0
// What a call returns: CUDA's codes. A code that a kernel caused stays until the process ends.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace tilescope::gpu::emulator {

/// A call that CUDA refuses, or work that failed on the device.
class CudaFailure : public std::runtime_error {
 public:
  CudaFailure(cudaError_t status, const std::string& what) : std::runtime_error(what), status_(status) {}
  cudaError_t status() const { return status_; }

 private:
  cudaError_t status_;
};

/// To standard error, with the names of kernels as C++ has them.
void say(const std::string& message);

/// Notes the status for cudaGetLastError, and for good if `sticks`, and prints the message, which CUDA's
/// codes have no room for, to standard error.
cudaError_t note_failure(cudaError_t status, const std::string& message, bool sticks);

/// What sticks, or cudaSuccess. As on a device, what a launch does wrong is met by the next call that waits
/// for it, not by the launch.
cudaError_t stuck_failure();
bool has_failed();
void meet_failures();

/// The body of every call: `work` unless something sticks; what it throws becomes the call's status.
template <typename Work>
cudaError_t as_call(const char* name, Work&& work) {
  if (const cudaError_t stuck = stuck_failure()) return stuck;
  try {
    work();
    return cudaSuccess;
  } catch (const CudaFailure& failure) {
    return note_failure(failure.status(), std::string(name) + ": " + failure.what(), false);
  } catch (const std::exception& error) {
    return note_failure(cudaErrorUnknown, std::string(name) + ": " + error.what(), false);
  }
}

}  // namespace tilescope::gpu::emulator
