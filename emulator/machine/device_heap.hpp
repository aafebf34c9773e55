// SPDX-License-Identifier: Apache-2.0
// What kernels allocate by malloc. It lives as long as the launch. Each part of a launch that runs on its own
// has 8 MiB, as a device has unless its host asks for more.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

class DeviceHeap {
 public:
  /// The address; 0 where there is no room.
  std::uint64_t allocate(Memory& memory, std::uint64_t bytes);
  /// @returns false where nothing was allocated at the address. 0 is nothing, and may be freed.
  bool free(Memory& memory, std::uint64_t address);

 private:
  std::map<std::uint64_t, std::vector<std::byte>> by_address_;
  std::uint64_t used_ = 0;
};

}  // namespace tilescope::gpu::emulator
