// SPDX-License-Identifier: Apache-2.0
// The instructions of a kernel that touch memory, and by which way each reaches L2.
// Sources: PTX ISA, "Cache Operators", ld, cp.async; NVIDIA, "Hopper Tuning Guide", unified L1.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

enum class Route : std::uint8_t {
  l1,        // looks there and leaves there what it fetched
  l2,        // goes past L1: .cg, .cv, volatile, acquire, cp.async.cg, atomics; and all stores
  constant,  // the constant cache
};

struct MemorySite {
  std::uint32_t instruction = 0;  // its index in the kernel
  Route route = Route::l2;
  bool reduces = false;  // an atomic whose result nobody reads, which ptxas makes a reduction
};

/// One for every instruction that names memory, and how to find them.
class MemorySites {
 public:
  explicit MemorySites(const ptx::Kernel& kernel);
  std::size_t size() const { return sites_.size(); }
  const MemorySite& operator[](std::size_t index) const { return sites_[index]; }
  std::size_t index_of(const ptx::Instruction& instruction) const {
    return by_instruction_[static_cast<std::size_t>(&instruction - kernel_->instructions.data())];
  }
  const ptx::Instruction& instruction(std::size_t index) const {
    return kernel_->instructions[sites_[index].instruction];
  }

 private:
  const ptx::Kernel* kernel_;
  std::vector<MemorySite> sites_;
  std::vector<std::uint32_t> by_instruction_;
};

}  // namespace tilescope::gpu::emulator
