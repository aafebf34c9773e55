// SPDX-License-Identifier: Apache-2.0
// Shared memory as Hopper's copy engine writes it and its tensor cores read it, for tests without a device:
// every element knows where it came from.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/primitives/sm90/matrix_descriptor.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::testing {

using namespace gpu::sm90;

inline constexpr std::uint32_t kBase = 7 * 1024;

/// Shared memory of 16-bit elements that knows where each element came from.
struct SharedMemory {
  std::vector<int> element = std::vector<int>(128 * 1024, -1);  // id of the element at byte address 2 i
  int& at(std::uint32_t address) { return element.at(address / 2); }
};

inline int id(int row, int col) { return row * 1000 + col; }

/// What the copy engine does with a box of `rows` x one panel from column `first_col`: row after row of the
/// inner width, each 16-byte chunk at the place that the swizzling mode gives it (PTX ISA's tables: chunk c
/// of line l goes to chunk c xor (l mod 8), for 64 bytes c xor (l / 2 mod 4), for 32 bytes c xor (l / 4 mod
/// 2)).
inline void copy_box(SharedMemory& shared, std::uint32_t address, Swizzle swizzle, int rows, int first_col) {
  const int width = panel_row_bytes(swizzle);
  for (int row = 0; row < rows; ++row) {
    for (int byte = 0; byte < width; byte += 2) {
      const int chunk = byte / 16;
      int moved = chunk;
      if (swizzle == Swizzle::bytes128) moved = chunk ^ (row % 8);
      if (swizzle == Swizzle::bytes64) moved = chunk ^ (row / 2 % 4);
      if (swizzle == Swizzle::bytes32) moved = chunk ^ (row / 4 % 2);
      shared.at(address + static_cast<std::uint32_t>(row * width + 16 * moved + byte % 16)) =
          id(row, first_col + byte / 2);
    }
  }
}

inline SharedMemory copied(const PanelTile& tile) {
  SharedMemory shared;
  for (int panel = 0; panel < tile.panels(); ++panel) {
    copy_box(shared, kBase + static_cast<std::uint32_t>(panel * tile.panel_bytes()), tile.swizzle, tile.rows,
             panel * tile.panel_cols());
  }
  return shared;
}

/// The element that the tensor core takes for (index, k) of an operand, from the descriptor's word alone.
/// K-major: groups of eight rows lie `stride` apart, rows of a group one swizzle width. MN-major: columns run
/// along the row, beyond a swizzle width `leading` apart; k goes down the rows, groups of eight `stride`
/// apart.
inline int taken(SharedMemory& shared, std::uint64_t word, Major major, int index, int k) {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(word >> bit & 0x3FFF) << 4; };
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  const auto swizzle = static_cast<Swizzle>(word >> 62);
  const auto width = static_cast<std::uint32_t>(panel_row_bytes(swizzle));
  const auto i = static_cast<std::uint32_t>(index), depth = static_cast<std::uint32_t>(k);
  std::uint32_t address;
  if (major == Major::k) {
    address = start + i / 8 * stride + i % 8 * width + 2 * depth;
  } else {
    address =
        start + i / (width / 2) * leading + 2 * (i % (width / 2)) + depth / 8 * stride + depth % 8 * width;
  }
  return shared.at(swizzled(swizzle, address));
}

}  // namespace tilescope::testing
