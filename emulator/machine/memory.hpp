// SPDX-License-Identifier: Apache-2.0
// Global memory: host memory, and a table of what of it is allocated to the device.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tilescope::gpu::emulator {

class Memory {
 public:
  struct Allocation {
    std::uint64_t base = 0, bytes = 0;
    std::string name;
    bool uninitialised = false;  // nothing that anybody may rely on lay there before the launch
    bool holds(std::uint64_t address, std::uint64_t size) const {
      return address >= base && size <= bytes && address - base <= bytes - size;
    }
  };

  void add(const void* base, std::uint64_t bytes, std::string name, bool uninitialised = false);
  void remove(const void* base);
  /// Nothing is allocated at `base` any more; what find() gave stays valid, and holds nothing.
  void free(const void* base);
  /// The allocation that holds all of the bytes, or null.
  const Allocation* find(std::uint64_t address, std::uint64_t bytes) const;
  /// Throws a Fault that names the nearest allocation, and how far off it is, if no allocation holds all of
  /// the bytes.
  void check(std::uint64_t address, std::uint64_t bytes, int lane = -1) const;
  const std::map<std::uint64_t, Allocation>& allocations() const { return by_base_; }  // by base
  /// The allocations before and after an address, as words.
  std::string nearest(std::uint64_t address) const;

 private:
  std::map<std::uint64_t, Allocation> by_base_;
};

}  // namespace tilescope::gpu::emulator
