// SPDX-License-Identifier: Apache-2.0
// What crosses between an SM and L2 beside the bytes of a tile: zeros of boxes, and what sectors hold where
// rows begin or end inside them.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/tensors.hpp"

namespace tilescope {

/// What crosses between an SM and L2 at the least. [bytes]
inline constexpr std::int64_t kSectorBytes = 32;

constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }
/// Sectors that a range of bytes touches, whole. [bytes]
constexpr std::int64_t touched_bytes(std::int64_t begin, std::int64_t end) {
  return end <= begin ? 0 : rounded_up(end, kSectorBytes) - begin / kSectorBytes * kSectorBytes;
}

/// What asks for a tile, where more crosses than its bytes. Each was counted on an H200 or an H100 at
/// multiples of 8 elements. Rows lie one after the other, and are multiples of 16 bytes or one number; there
/// is no padding.
enum class AskedBy : std::uint8_t {
  /// The copy engine (TMA), by those boxes of a tile that begin inside the tensor. A box crosses whole, zeros
  /// beyond the tensor included, by a panel's row: the sectors that its data touch, and as many as its zeros
  /// fill. So a whole panel that begins inside a sector takes one sector more, and one in which the row ends
  /// inside a sector always does: head_dim 72 in 16 bits takes 304 bytes for rows of 144. Of numbers of
  /// heads: each is asked for by itself, and comes in a panel, a sector.
  boxes,
  /// The copy engine stores them: of a panel's row the sectors that its data touch.
  stored_boxes,
  /// Copies of 16 bytes past L1 (cp.async.cg): a sector comes for each 32 bytes of shared memory that a part
  /// of it goes to. Rows begin at such a place there; those of one number lie there as they lie in memory.
  copies,
  /// Rows that begin at sectors, with what fills the last one: N x N matrices in device memory. They are
  /// stored as they are loaded.
  padded_rows,
  /// Loads of panel_bytes that lie one after the other, from each row on where a row has several: the sectors
  /// that these touch.
  pieces,
  /// Copies where a tile begins at a multiple of 16 bytes, pieces elsewhere.
  copies_or_pieces,
  /// Copies of numbers, as above: those of each head begin at a sector.
  aligned_copies,
  /// The same by loads of panel_bytes at a time, and one by one of the last ones, which are fewer.
  aligned_runs,
};

/// Of what a tile of the tensor consists where it crosses.
struct Boxes {
  TensorName tensor;
  int rows = 0;
  int panel_bytes = 0;
  bool evict_first = false;  // the L2 is asked to give up these lines before all others
  AskedBy asked_by = AskedBy::boxes;
  bool operator==(const Boxes&) const = default;

  bool loaded() const { return asked_by != AskedBy::stored_boxes; }
  bool stored() const { return asked_by == AskedBy::stored_boxes || asked_by == AskedBy::padded_rows; }
  /// What crosses beside the bytes of so many rows from `first` on, counted over the tensors of all heads.
  /// They are tiles of `tile_rows`; the last one may be cut.
  /// @param numbers  whether a row is one number
  std::int64_t beside_rows(std::int64_t first, std::int64_t rows, std::int64_t tile_rows,
                           std::int64_t row_bytes, bool numbers) const;
};

}  // namespace tilescope
