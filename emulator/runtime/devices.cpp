// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/devices.hpp"

#include <cstring>
#include <vector>

#include "emulator/runtime/environment.hpp"
#include "emulator/runtime/errors.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::size_t kAlignment = 256, kApart = 256;
constexpr int kPoison = 0xFF;

thread_local int chosen_device = 0;

DeviceChoice read_choice() {
  const DeviceChoice choice{.devices = from_environment("TILESCOPE_EMULATED_DEVICES", 1),
                            .compute_capability = from_environment("TILESCOPE_EMULATED_CHIP", 90)};
  if (choice.devices < 0) {
    throw CudaFailure(cudaErrorNoDevice, "TILESCOPE_EMULATED_DEVICES must be a number of devices");
  }
  if (choice.compute_capability != 80 && choice.compute_capability != 90) {
    throw CudaFailure(cudaErrorNoDevice, "TILESCOPE_EMULATED_CHIP must be 80 or 90");
  }
  return choice;
}

/// Never destroyed: objects of static duration free device memory after main has returned.
std::vector<std::unique_ptr<Device>>& devices() {
  static auto& all = *[] {
    auto* made = new std::vector<std::unique_ptr<Device>>;
    for (int i = 0; i < device_choice().devices; ++i) made->push_back(std::make_unique<Device>(i));
    return made;
  }();
  return all;
}

}  // namespace

const DeviceChoice& device_choice() {
  static const DeviceChoice choice = read_choice();
  return choice;
}

void* Device::allocate(std::size_t bytes, const std::string& name) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  if (bytes > free_bytes()) {
    throw CudaFailure(cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes asked for, " +
                                                     std::to_string(free_bytes()) + " are free");
  }
  auto storage = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlignment + 2 * kApart);
  const auto address = reinterpret_cast<std::uintptr_t>(storage.get()) + kApart;
  auto* const base = reinterpret_cast<std::byte*>((address + kAlignment - 1) / kAlignment * kAlignment);
  std::memset(base, kPoison, bytes);
  memory_.add(base, bytes, name);
  allocations_.emplace(base, Allocation{bytes, std::move(storage)});
  used_bytes_ += bytes;
  return base;
}

void Device::release(void* allocation) {
  if (!allocation) return;
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(static_cast<const std::byte*>(allocation));
  if (found == allocations_.end())
    throw CudaFailure(cudaErrorInvalidValue, "not an allocation of this device");
  memory_.remove(allocation);
  used_bytes_ -= found->second.bytes;
  allocations_.erase(found);
}

bool Device::holds(const void* from, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return memory_.find(reinterpret_cast<std::uint64_t>(from), bytes);
}

Device& device(int number) {
  if (number < 0 || number >= device_choice().devices) {
    throw CudaFailure(device_choice().devices == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice,
                      "device " + std::to_string(number) + " of " + std::to_string(device_choice().devices));
  }
  return *devices()[static_cast<std::size_t>(number)];
}

Device& current_device() { return device(chosen_device); }

void choose_device(int number) { chosen_device = device(number).number(); }

Device* owner_of(const void* from, std::size_t bytes) {
  for (const auto& candidate : devices()) {
    if (candidate->holds(from, bytes)) return candidate.get();
  }
  return nullptr;
}

int attribute_of_device(cudaDeviceAttr attribute) {
  const int capability = device_choice().compute_capability;
  const bool hopper = capability == 90;  // an H200; else an A100
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return capability % 10;
    case cudaDevAttrMultiProcessorCount:
      return hopper ? 132 : 108;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return (hopper ? 227 : 163) * 1024;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return (hopper ? 228 : 164) * 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrClusterLaunch:
      return hopper;
    default:
      throw CudaFailure(cudaErrorNotSupported,
                        "the emulated device says nothing of attribute " + std::to_string(attribute));
  }
}

}  // namespace tilescope::gpu::emulator
