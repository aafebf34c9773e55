// SPDX-License-Identifier: Apache-2.0
// How ptxas placed a kernel's stores to global memory: whether those that reach the same sectors stand in a
// row, which L1 may merge, or apart, behind the arithmetic that makes their values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tilescope::gpu::emulator {

/// Of stores that reach within 32 bytes of one before them, from the same register, in the same block.
struct StoreRuns {
  static constexpr unsigned kMostBetween = 8;
  static constexpr double kOpenLines = 32;        // and more: the first of them has left L1
  std::array<unsigned, kMostBetween> in_a_row{};  // by how many other places stores in between reach
  unsigned meeting = 0;                           // all, those apart among them

  /// The share that stands in a row while fewer lines are open, if each opens so many; 1 where nothing is
  /// known.
  double share(double lines) const;
};

/// Of a kernel in what `cuobjdump -sass` and `nvdisasm -c` print; nothing where it is not there.
std::optional<StoreRuns> store_runs_in_sass(std::string_view sass, std::string_view kernel);

}  // namespace tilescope::gpu::emulator
