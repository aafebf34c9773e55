// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/device_heap.hpp"

#include <cstddef>

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kMostBytes = 8 << 20;  // cudaLimitMallocHeapSize
constexpr std::uint64_t kHeapAlign = 16, kGuard = 64;

}  // namespace

std::uint64_t DeviceHeap::allocate(Memory& memory, std::uint64_t bytes) {
  if (bytes == 0 || bytes > kMostBytes - used_) return 0;
  // What was not written reads as NaN, and nothing else lies right beside it.
  std::vector<std::byte> storage(bytes + 2 * kGuard, std::byte{0xff});
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data()) + kGuard;
  const std::uint64_t address = (begin + kHeapAlign - 1) / kHeapAlign * kHeapAlign;
  memory.add(reinterpret_cast<const void*>(address), bytes, "memory of malloc");
  by_address_.emplace(address, std::move(storage));
  used_ += bytes;
  return address;
}

bool DeviceHeap::free(Memory& memory, std::uint64_t address) {
  if (address == 0) return true;
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return false;
  used_ -= found->second.size() - 2 * kGuard;
  memory.free(reinterpret_cast<const void*>(address));
  by_address_.erase(found);
  return true;
}

}  // namespace tilescope::gpu::emulator
