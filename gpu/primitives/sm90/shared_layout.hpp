// SPDX-License-Identifier: Apache-2.0
// Where an element of a tile lies in shared memory, as the copy engine (TMA) writes it and the tensor cores
// (wgmma) read it. constexpr, for host and device, without a CUDA include: CPU tests hold it to brute force.
// Sources: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout" and "Swizzling modes".
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TILESCOPE_SM90_HOST_DEVICE __host__ __device__
#else
#define TILESCOPE_SM90_HOST_DEVICE
#endif

namespace tilescope::gpu::sm90 {

/// The width of a panel's row, over which 16-byte chunks are permuted so that eight rows of a column lie in
/// different banks. The value is that of the matrix descriptor.
enum class Swizzle : std::uint8_t { none = 0, bytes128 = 1, bytes64 = 2, bytes32 = 3 };

TILESCOPE_SM90_HOST_DEVICE constexpr int panel_row_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::bytes128  ? 128
         : swizzle == Swizzle::bytes64 ? 64
         : swizzle == Swizzle::bytes32 ? 32
                                       : 16;
}

/// The byte address that holds what an unswizzled layout has at `address`. Bits 7 to 9 are added (exclusive
/// or) to the 16-byte chunk, as many of them as the panel's row has chunk bits. An involution.
TILESCOPE_SM90_HOST_DEVICE constexpr std::uint32_t swizzled(Swizzle swizzle, std::uint32_t address) {
  const std::uint32_t chunks = static_cast<std::uint32_t>(panel_row_bytes(swizzle)) / 16;
  return address ^ ((address >> 7 & (chunks - 1)) << 4);
}

/// A rows x cols tile as panels, one behind the other: each holds all rows of as many columns as the swizzle
/// spans. It starts at a multiple of 1024 bytes.
struct PanelTile {
  int rows = 0;
  int cols = 0;
  int element_bytes = 2;
  Swizzle swizzle = Swizzle::bytes128;

  TILESCOPE_SM90_HOST_DEVICE constexpr int panel_cols() const {
    return panel_row_bytes(swizzle) / element_bytes;
  }
  TILESCOPE_SM90_HOST_DEVICE constexpr int panels() const { return (cols + panel_cols() - 1) / panel_cols(); }
  TILESCOPE_SM90_HOST_DEVICE constexpr int panel_bytes() const { return rows * panel_row_bytes(swizzle); }
  TILESCOPE_SM90_HOST_DEVICE constexpr int bytes() const { return panels() * panel_bytes(); }
  /// Where element (row, col) lies, from the tile's start.
  TILESCOPE_SM90_HOST_DEVICE constexpr std::uint32_t offset(int row, int col) const {
    const int in_panel = row * panel_row_bytes(swizzle) + col % panel_cols() * element_bytes;
    return static_cast<std::uint32_t>(col / panel_cols() * panel_bytes()) +
           swizzled(swizzle, static_cast<std::uint32_t>(in_panel));
  }
  constexpr bool operator==(const PanelTile&) const = default;
};

/// Where the buffers of one operand and their barriers lie in a CTA's shared memory. [bytes] A ring of
/// `stages` buffers; or several rings beside each other, each of one warpgroup. Each buffer has a barrier
/// that says it is full, and one that says it is empty. Who fills it and who uses it see it as a Pipe
/// (pipe.cuh).
struct PipeLayout {
  int stages = 0;
  int buffer_bytes = 0;
  int rings = 1;
  bool by_stage = true;  // buffers of several rings: those of a stage side by side, or else those of a ring
  int buffers = 0;       // the first one; the others follow
  int full = 0, empty = 0;  // the first barriers, of 8 bytes

  TILESCOPE_SM90_HOST_DEVICE constexpr int count() const { return stages * rings; }
  /// Of all buffers.
  TILESCOPE_SM90_HOST_DEVICE constexpr int index(int stage, int ring) const {
    if (rings == 1) return stage;
    return by_stage ? stage * rings + ring : ring * stages + stage;
  }
  constexpr bool operator==(const PipeLayout&) const = default;
};

/// A CTA's shared memory, handed out piece by piece. [bytes]
struct SharedPieces {
  int end = 0;

  constexpr int take(int bytes) {
    const int at = end;
    end += bytes;
    return at;
  }
  /// The buffers of a pipe, whose barriers come behind all buffers.
  constexpr PipeLayout take_buffers(int stages, int bytes, int rings = 1, bool by_stage = true) {
    return {stages, bytes, rings, by_stage, take(stages * rings * bytes)};
  }
  template <typename... Pipes>
  constexpr void take_barriers(Pipes&... pipes) {
    const auto of_one = [this](PipeLayout& pipe) {
      pipe.full = take(8 * pipe.count());
      pipe.empty = take(8 * pipe.count());
    };
    (of_one(pipes), ...);
  }
};

}  // namespace tilescope::gpu::sm90
