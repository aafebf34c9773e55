// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode on Hopper: its tile and where things lie in shared memory. Plain C++.
#pragma once

#include "gpu/kernels/decode/mla.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope {

/// A warpgroup loads, two compute. The first has S of all rows and keys, P from it, and the left columns of
/// O; the second has the right ones. Each half of O is 128 registers a thread.
struct MlaWgmmaShape {
  static constexpr int kRows = 64, kKeys = MlaShape::kKeys, kStages = 2;
  /// Of a q tile. Fewer are faster by mma.sync, which multiplies no empty rows.
  static constexpr int kLeastRows = 32;
  static constexpr int kThreads = 3 * 128, kConsumerThreads = 2 * 128;
  static constexpr int kLoaderRegisters = 56, kConsumerRegisters = 224;
  static constexpr int kHalfColumns = MlaShape::kValueDim / 2;  // of O: a warpgroup's

  static constexpr gpu::sm90::PanelTile q_tile() { return {kRows, MlaShape::kHeadDim}; }
  static constexpr gpu::sm90::PanelTile key_tile() { return {kKeys, MlaShape::kHeadDim}; }
  /// A half of the first kValueDim columns of key_tile().
  static constexpr gpu::sm90::PanelTile value_tile() { return {kKeys, kHalfColumns}; }
  static constexpr gpu::sm90::PanelTile probs_tile() { return {kRows, kKeys}; }

  /// A tile of keys comes in two parts, each of which is used and given back on its own: the panels of the
  /// left columns of O with those that are no values, and the panels of the right columns.
  static constexpr int kParts = 2, kPanels = MlaShape::kHeadDim / 64, kHalfPanels = kHalfColumns / 64;
  static constexpr bool in_part(int panel, int part) {
    return (panel >= kHalfPanels && panel < 2 * kHalfPanels) == (part == 1);
  }

  static constexpr int kPagesAhead = 1;  // tiles

  /// Shared memory, offsets in bytes: Q, the stages, P, what rows are rescaled by, and normalised; the pages
  /// of tiles to come; the barriers that say that parts of stages are full, and empty, and what
  /// warpgroups tell each other.
  static constexpr int q() { return 0; }
  static constexpr int k(int stage) { return q_tile().bytes() + stage * key_tile().bytes(); }
  static constexpr int p() { return k(kStages); }
  static constexpr int factors() { return p() + probs_tile().bytes(); }
  static constexpr int normalisers() { return factors() + 4 * kRows; }
  static constexpr int pages() { return normalisers() + 4 * kRows; }
  static constexpr int full() { return pages() + 4 * 2 * kPagesAhead * MlaShape::kMostPages; }
  static constexpr int empty() { return full() + 8 * kStages * kParts; }
  static constexpr int told() { return empty() + 8 * kStages * kParts; }
  static constexpr int end() { return told() + 8 * 4; }
};

}  // namespace tilescope
