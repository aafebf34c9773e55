// SPDX-License-Identifier: Apache-2.0
// What is drawn during a run: splitmix64, so that a seed gives the same run with every library.
#pragma once

#include <cstdint>

namespace tilescope::gpu::emulator {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// Below `bound`, which is not 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace tilescope::gpu::emulator
