// SPDX-License-Identifier: Apache-2.0
// How wgmma is told where an operand lies in shared memory. constexpr, for host and device, no CUDA include.
// Source: PTX ISA, "Matrix descriptor format".
#pragma once

#include <cstdint>

#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::sm90 {

/// Which index of an operand (M or N of the product; K) runs along the rows of its panels.
enum class Major : std::uint8_t {
  k,   // columns are K: Q and K in S = Q K^T
  mn,  // columns are M or N: V in O = P V
};

struct MatrixDescriptor {
  std::uint32_t start_address = 0;  // [bytes]
  std::uint32_t leading_bytes = 0;  // K-major: ignored where swizzled. MN-major: from panel to panel
  std::uint32_t stride_bytes = 0;   // from one group of eight panel rows to the next
  Swizzle swizzle = Swizzle::bytes128;

  /// Start address in bits 0-13, leading offset in 16-29, stride offset in 32-45, all in units of 16 bytes;
  /// the base offset (49-51) is 0 since swizzle patterns start at multiples of their 1024, 512 or 256 bytes.
  TILESCOPE_SM90_HOST_DEVICE constexpr std::uint64_t word() const {
    const auto field = [](std::uint32_t bytes) { return static_cast<std::uint64_t>((bytes & 0x3FFFF) >> 4); };
    return field(start_address) | field(leading_bytes) << 16 | field(stride_bytes) << 32 |
           static_cast<std::uint64_t>(swizzle) << 62;
  }
};

/// The first K step of a tile that starts at `address`, from `row` on (K-major) or from row 0 (MN-major).
TILESCOPE_SM90_HOST_DEVICE constexpr MatrixDescriptor describe(const PanelTile& tile, Major major,
                                                               std::uint32_t address) {
  const auto row_bytes = static_cast<std::uint32_t>(panel_row_bytes(tile.swizzle));
  return {address, major == Major::mn ? static_cast<std::uint32_t>(tile.panel_bytes()) : 16, 8 * row_bytes,
          tile.swizzle};
}

/// What K step `step` adds to the descriptor's word: 32 bytes of K are an instruction's depth in either
/// element size. K-major steps go along the panel's row and then to the next panel, MN-major ones down the
/// rows.
TILESCOPE_SM90_HOST_DEVICE constexpr std::uint32_t k_step(const PanelTile& tile, Major major, int step) {
  constexpr int kStepBytes = 32;
  if (major == Major::mn) {
    return static_cast<std::uint32_t>(step * (kStepBytes / tile.element_bytes) *
                                      panel_row_bytes(tile.swizzle)) >>
           4;
  }
  const int steps_a_panel = panel_row_bytes(tile.swizzle) / kStepBytes;
  return static_cast<std::uint32_t>(step / steps_a_panel * tile.panel_bytes() +
                                    step % steps_a_panel * kStepBytes) >>
         4;
}

}  // namespace tilescope::gpu::sm90
