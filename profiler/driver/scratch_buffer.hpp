// SPDX-License-Identifier: Apache-2.0
// Owner of the device memory that kernels work on which measure the device itself.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

/// Uninitialised device memory of the current context.
class ScratchBuffer {
 public:
  /// @throws MachineLacks saying how much was asked for
  explicit ScratchBuffer(std::int64_t bytes) {
    if (cudaMalloc(&data_, static_cast<std::size_t>(bytes)) == cudaSuccess) return;
    cudaGetLastError();  // it would be found again by the next check
    throw MachineLacks("out of device memory: a buffer of " + std::to_string(bytes >> 20) +
                       " MiB is needed, and cannot be had");
  }
  ~ScratchBuffer() { cudaFree(data_); }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace tilescope
