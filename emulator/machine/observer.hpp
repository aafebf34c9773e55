// SPDX-License-Identifier: Apache-2.0
// What is told of every access to global and shared memory while a launch runs, for whoever counts.
#pragma once

#include <cstdint>

#include "emulator/machine/memory_access.hpp"
#include "emulator/machine/traffic.hpp"

namespace tilescope::gpu::emulator {

/// What lanes of a warp ask of memory by one instruction, which is `warp.instruction`.
struct LaneRequest {
  const Warp& warp;
  Purpose purpose;
  LaneMask lanes;
  const Addresses& addresses;  // of these lanes; in global memory, or offsets in shared memory
  std::uint32_t bytes;         // of each lane
};

/// A run of bytes that the copy engine moves for a CTA: a row of a box, or all of a copy without a map.
struct EngineRun {
  const Cta& cta;
  const ptx::Instruction& instruction;
  Purpose purpose;
  std::uint64_t address = 0;         // where the whole run begins, what lies beyond the tensor included
  std::uint32_t bytes = 0;           // of the whole run
  std::uint32_t begin = 0, end = 0;  // of these bytes, those that exist; equal if none does
  bool again = false;                // another CTA of the cluster received the same bytes by the same copy
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(Cta& cta) = 0;
  virtual void end(Cta& cta) = 0;
  virtual void global(const LaneRequest& request) = 0;  // addresses are checked
  virtual void shared(const LaneRequest& request, unsigned wavefronts) = 0;
  virtual void engine(const EngineRun& run) = 0;
};

}  // namespace tilescope::gpu::emulator
