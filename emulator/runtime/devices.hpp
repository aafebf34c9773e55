// SPDX-License-Identifier: Apache-2.0
// The emulated devices of this process: their memory, which is the host's, and what they say of themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

/// What the environment says: TILESCOPE_EMULATED_DEVICES (1), TILESCOPE_EMULATED_CHIP (90, or 80).
struct DeviceChoice {
  int devices = 1;
  int compute_capability = 90;
};
/// @throws CudaFailure where a value is none of these
const DeviceChoice& device_choice();

class Device {
 public:
  explicit Device(int number) : number_(number) {}

  int number() const { return number_; }
  Memory& memory() { return memory_; }
  /// Held while its memory is looked at or changed, and so while a kernel runs.
  std::recursive_mutex& mutex() const { return mutex_; }

  /// Filled with what reads as NaN in every element type; aligned to 256 bytes, with nothing accessible
  /// beside it.
  /// @throws CudaFailure where the device has no room left
  void* allocate(std::size_t bytes, const std::string& name);
  /// @throws CudaFailure where this is no allocation
  void release(void* allocation);
  std::size_t free_bytes() const { return kTotalBytes - used_bytes_; }
  /// Whether these bytes lie in one allocation, or in one variable of a module.
  bool holds(const void* from, std::size_t bytes) const;

  /// As much as a test may take of the host's memory, not as much as an H200 has.
  static constexpr std::size_t kTotalBytes = std::size_t{4} << 30;

 private:
  struct Allocation {
    std::size_t bytes;
    std::unique_ptr<std::byte[]> storage;
  };
  int number_;
  mutable std::recursive_mutex mutex_;
  Memory memory_;
  std::map<const std::byte*, Allocation> allocations_;
  std::size_t used_bytes_ = 0;
};

/// @throws CudaFailure where there is no such device
Device& device(int number);
/// The calling thread's.
Device& current_device();
void choose_device(int number);
/// The device that holds these bytes, or null: the host's.
Device* owner_of(const void* from, std::size_t bytes);

/// @throws CudaFailure for what the emulated device says nothing of
int attribute_of_device(cudaDeviceAttr attribute);

}  // namespace tilescope::gpu::emulator
