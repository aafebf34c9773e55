// SPDX-License-Identifier: Apache-2.0
// What SMs ask of the L2, CTA by CTA, for whoever replays it.
#pragma once

#include <cstdint>
#include <vector>

namespace tilescope::gpu::emulator {

enum class L2Access : std::uint8_t { load, store, update };

struct L2Request {
  std::uint64_t sector;  // its address / 32
  std::uint64_t turn;    // sectors that the CTA asked for before
  L2Access access;
};

class L2Listener {
 public:
  virtual ~L2Listener() = default;
  /// Before all others. @param ctas_per_sm  that are there at once
  virtual void begin(std::uint64_t ctas_per_sm) = 0;
  /// Whether requests for a sector are of interest; called by several threads.
  virtual bool wants(std::uint64_t sector) const = 0;
  /// A CTA, by its number in the grid, has ended; called by one thread at a time.
  /// @param turns  sectors that it asked for @param requests  those of interest, in their order
  virtual void add(std::uint32_t cta, std::uint64_t turns, std::vector<L2Request> requests) = 0;
};

}  // namespace tilescope::gpu::emulator
