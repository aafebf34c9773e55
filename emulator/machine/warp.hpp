// SPDX-License-Identifier: Apache-2.0
// A warp as a handler sees it: the lanes of its registers, the lanes that execute, its CTA.
#pragma once

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/machine/cta.hpp"
#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

using ptx::kLanes;
using LaneMask = std::uint32_t;

/// Lanes at one instruction.
struct LaneGroup {
  std::uint32_t pc = 0;
  LaneMask lanes = 0;
};

/// A call that has not returned, of one lane.
struct Frame {
  std::uint32_t return_to = 0;
  const ptx::Instruction* call = nullptr;
  const ptx::Function* function = nullptr;
  std::vector<std::byte>
      saved;  // of a function that calls itself: its registers and local memory as they were
};

class Warp {
 public:
  Warp(Cta& cta, std::uint32_t index, LaneMask lanes);

  Cta& cta;
  const std::uint32_t index;  // in the CTA
  LaneMask active = 0;        // the lanes that execute the instruction: of its group, and not guarded off
  const ptx::Instruction* instruction = nullptr;  // that they execute
  LaneMask carry = 0;                             // of add.cc and its like, a lane each

  /// The 32 values of a register or a constant. T has the width of the operand as the instruction's type
  /// says.
  template <class T>
  const T* read(const ptx::Operand& operand) const {
    return reinterpret_cast<const T*>(operand.kind == ptx::Operand::Kind::constant
                                          ? constants_ + operand.offset + place_of_width(sizeof(T))
                                          : registers_.get() + operand.offset);
  }
  /// A register's 32 values. Handlers write those of active lanes only.
  template <class T>
  T* write(const ptx::Operand& operand) {
    return reinterpret_cast<T*>(registers_.get() + operand.offset);
  }
  /// A predicate as a mask of lanes, `!p` and constants included.
  LaneMask predicate(const ptx::Operand& operand) const;
  /// Sets a predicate in the active lanes; `_` is left alone.
  void set_predicate(const ptx::Operand& operand, LaneMask values);
  /// One lane's value of an integer operand of any width, for operands that are the same in all lanes or
  /// rarely read.
  std::uint64_t value(const ptx::Operand& operand, int lane) const;
  void set_value(const ptx::Operand& operand, int lane, std::uint64_t value);
  /// One lane's address: base and displacement.
  std::uint64_t address(const ptx::Operand& operand, int lane) const;
  /// The first active lane, for operands that all lanes must agree on.
  int leader() const { return __builtin_ctz(active); }

  int thread(int lane) const { return static_cast<int>(index) * kLanes + lane; }  // in the CTA
  LaneMask live() const { return living; }

  // What follows is the scheduler's.
  LaneMask living = 0;
  std::vector<LaneGroup> groups;                  // disjoint, of living lanes, by rising pc
  bool at_barrier = false;                        // arrived at a named barrier, and waits
  std::uint64_t barrier_phase = 0;                // of that barrier when the warp arrived
  std::uint64_t since_poll = 0;                   // instructions executed since it asked in vain
  std::uint64_t turns_apart = 0;                  // since its lanes were all at one instruction
  std::array<std::uint32_t, kLanes> next{};       // of Outcome::scatter
  std::array<std::vector<Frame>, kLanes> frames;  // calls, the innermost last
  std::any extension;                             // state of sm90/

 private:
  static constexpr std::size_t place_of_width(std::size_t bytes) {
    return bytes <= 2 ? 0 : bytes == 4 ? offsetof(ptx::Constant, word) : offsetof(ptx::Constant, pair);
  }
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> registers_;
  const std::byte* constants_ = nullptr;
};

/// for_lanes(mask, f): f(lane) for the lanes of a mask.
template <class F>
inline void for_lanes(LaneMask mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

}  // namespace tilescope::gpu::emulator
