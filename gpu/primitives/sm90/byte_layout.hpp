// SPDX-License-Identifier: Apache-2.0
// Orders of 8-bit operands. wgmma takes a right operand of bytes along K alone (PTX ISA, "wgmma.mma_async"),
// and V has its keys down the columns, so that V is transposed on chip; and a left operand's register holds
// four neighbours along K, where an accumulator's thread has pairs eight columns apart. Both are made to fit
// by the orders below, without exchange between lanes: keys and columns of V^T stand where registers have
// them. constexpr, no CUDA include: CPU tests hold it to brute force.
#pragma once

#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::sm90 {

/// Entry of the 64 x 32 left operand of bytes that byte `byte` of register `index` (below 4) holds.
TILESCOPE_SM90_HOST_DEVICE constexpr Entry left_byte_entry(int thread, int index, int byte) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (index % 2), 16 * (index / 2) + 4 * (lane % 4) + byte};
}

/// The accumulator register that becomes byte `byte` of operand register `index`, 32 columns of P being
/// registers 0 to 15.
TILESCOPE_SM90_HOST_DEVICE constexpr int accumulator_of_byte(int index, int byte) {
  return 8 * (index / 2) + 4 * (byte / 2) + 2 * (index % 2) + byte % 2;
}

/// The key that then stands at place `place` of K: inside of 16, pairs of the two halves by turns.
TILESCOPE_SM90_HOST_DEVICE constexpr int key_at(int place) {
  return place / 16 * 16 + place % 16 / 4 * 2 + place % 2 + place / 2 % 2 * 8;
}

/// The row of V^T that takes column `col` of V: inside of 16, the even columns before the odd ones, as the
/// halves of what ldmatrix gives. Rows that are stored together then lie in different banks.
TILESCOPE_SM90_HOST_DEVICE constexpr int row_of_column(int col) {
  return col / 16 * 16 + col % 2 * 8 + col % 16 / 2;
}

/// O's columns come in that order, so that a thread has four neighbours of 16: the accumulator register of
/// column 4 (lane % 4) + i of group `group`, in row `half` of the thread's two.
TILESCOPE_SM90_HOST_DEVICE constexpr int accumulator_of_column(int group, int half, int i) {
  return 8 * group + 4 * (i % 2) + 2 * half + i / 2;
}

/// A warp transposes 32 keys x 16 columns of bytes at a time: the place of the 16 bytes whose address a lane
/// gives to ldmatrix.x4.trans (key and column of V) and to stmatrix.x4 (row and place of K of V^T).
TILESCOPE_SM90_HOST_DEVICE constexpr Entry transposed_source(int lane) { return {lane, 0}; }
TILESCOPE_SM90_HOST_DEVICE constexpr Entry transposed_target(int lane) {
  return {lane % 8 + 8 * (lane / 16), 16 * (lane / 8 % 2)};
}
/// What prmt makes of two registers of ldmatrix, keys 0 to 7 and 8 to 15 of 16 by pairs of columns: the even
/// column of each pair, and the odd one.
inline constexpr unsigned kEvenBytes = 0x6420, kOddBytes = 0x7531;

}  // namespace tilescope::gpu::sm90
