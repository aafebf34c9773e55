// SPDX-License-Identifier: Apache-2.0
// Which entries of a matrix the registers of a warpgroup's threads hold. constexpr, no CUDA include.
// Source: PTX ISA, "Register fragments and shared memory matrix layouts" of wgmma.
#pragma once

#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::sm90 {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupRows = 64;  // of every wgmma

struct Entry {
  int row = 0;
  int col = 0;
  constexpr bool operator==(const Entry&) const = default;
};

/// Entry of the 64 x N fp32 result that register `index` (below N / 2) of `thread` (below 128) holds. A row
/// lies in the four lanes of a quad.
TILESCOPE_SM90_HOST_DEVICE constexpr Entry accumulator_entry(int thread, int index) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index / 2 % 2), 8 * (index / 4) + 2 * (lane % 4) + index % 2};
}

/// Entry of the 64 x 16 left operand that half `half` (0: the low 16 bits) of register `index` (below 4)
/// holds. Registers 0 to 3 are 4 j ... 4 j + 3 of an accumulator's pairs: it turns into an operand in place.
TILESCOPE_SM90_HOST_DEVICE constexpr Entry left_operand_entry(int thread, int index, int half) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index % 2), 8 * (index / 2) + 2 * (lane % 4) + half};
}

/// Row and column, from a warp's 16 x 16 block, of the eight 16-bit elements whose address a lane gives to
/// stmatrix.x4. Its registers are then those of left_operand_entry().
TILESCOPE_SM90_HOST_DEVICE constexpr Entry stored_row(int lane) {
  return {lane % 8 + 8 * (lane / 8 % 2), 8 * (lane / 16)};
}

/// The same where stmatrix transposes: the lane's address is of a row of the 16 x 16 block's transpose.
TILESCOPE_SM90_HOST_DEVICE constexpr Entry stored_row_transposed(int lane) {
  return {lane % 8 + 8 * (lane / 16), 8 * (lane / 8 % 2)};
}

}  // namespace tilescope::gpu::sm90
