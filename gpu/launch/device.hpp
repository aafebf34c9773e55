// SPDX-License-Identifier: Apache-2.0
// Owners of device memory, streams and events.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "gpu/launch/check_cuda.hpp"
#include "gpu/launch/random_pages.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

/// @throws MachineLacks that says which of driver, device and architecture is missing, and what would help.
void require_device();

/// The current device and the CUDA versions round it. @throws as check_cuda
DeviceFacts current_device();

/// Allocation on the device between two guard bands, filled with NaN (every byte 0xFF).
class DeviceBuffer {
 public:
  static constexpr std::int64_t kGuardBytes = 4096;  // keeps the payload aligned to 256 bytes and more

  DeviceBuffer() = default;
  /// @throws MachineLacks naming the bytes and what is free when the memory cannot be had.
  /// @param pool  of pages to lie on, with room for footprint_bytes(bytes); none: cudaMalloc's memory
  DeviceBuffer(std::string name, std::int64_t bytes, PagePool* pool = nullptr);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(random_pages_, other.random_pages_);
    std::swap(bytes_, other.bytes_);
    std::swap(name_, other.name_);
    return *this;
  }
  ~DeviceBuffer();

  void* data() const { return allocation_ ? static_cast<char*>(allocation_) + kGuardBytes : nullptr; }
  std::int64_t bytes() const { return bytes_; }
  /// Device memory that a buffer of `bytes` takes with its guards.
  static std::int64_t footprint_bytes(std::int64_t bytes) { return bytes + 2 * kGuardBytes; }

  void poison(cudaStream_t stream);
  void zero(cudaStream_t stream);
  /// @throws DeviceError naming the buffer, the side and the first byte of a guard that was overwritten.
  void check_guards() const;

 private:
  void* allocation_ = nullptr;
  RandomPages random_pages_;  // where the allocation lies, if there
  std::int64_t bytes_ = 0;
  std::string name_;
};

/// A CUDA stream that does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  /// @throws DeviceError if anything enqueued failed; `what` names it.
  void synchronize(const std::string& what) const;

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tilescope
