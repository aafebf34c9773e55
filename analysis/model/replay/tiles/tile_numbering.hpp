// SPDX-License-Identifier: Apache-2.0
// Every tile of a pass as a dense number, so that a replay needs no hashing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu_ref/schedule/cta_walk.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

/// A tile's number and size.
struct NumberedTile {
  std::uint32_t number;
  std::int64_t bytes;
};

/// Numbers the tiles of the tensors that a program touches from 0 on, those that it writes first.
class TileNumbering {
 public:
  /// The program must outlive this.
  /// @throws BadInput when there are 2^32 tiles or more
  explicit TileNumbering(const TileProgram& program);

  std::uint32_t num_tiles() const { return num_tiles_; }
  bool numbers(TensorName tensor) const { return tensors_[static_cast<std::size_t>(tensor)].touched; }
  /// Tiles below this number may be stored or reduced; the others are only loaded.
  std::uint32_t num_written_tiles() const { return num_written_tiles_; }
  /// The tile of `tensor` that a group touches.
  /// @param slot  of partial results or sums; none: the group's
  NumberedTile tile(TensorName tensor, const AccessGroup& group,
                    std::optional<int> slot = std::nullopt) const {
    const Tensor& t = tensors_[static_cast<std::size_t>(tensor)];
    const int head_of_tensor = t.group_size == 1 ? group.head : group.head / t.group_size;
    const std::int64_t head =
        (t.of_heads ? 0 : static_cast<std::int64_t>(group.batch)) * t.heads + head_of_tensor;
    const int row_tile = t.of_heads ? 0 : t.by_m ? group.m_block : group.n_block;
    const int col_tile = t.col_tiles == 1 ? 0
                         : slot           ? *slot
                         : t.has_slots ? slot_at(*program_, tensor, group.batch, group.m_block, group.n_block)
                                       : group.n_block;
    const std::int64_t number = head * t.tiles_of_head + row_tile * t.row_stride + col_tile * t.col_stride;
    std::int64_t bytes = t.bytes[row_tile == t.row_tiles - 1][col_tile == t.col_tiles - 1];
    if (!t.unpadded_bytes.empty()) {
      const std::int64_t end = t.unpadded_bytes[static_cast<std::size_t>(group.batch)];
      bytes = std::clamp<std::int64_t>(end - row_tile * t.bytes_of_whole, 0, bytes);
    }
    return {static_cast<std::uint32_t>(t.first + number), bytes};
  }

  bool has_boxes() const { return has_boxes_; }
  /// What crosses beside the bytes of that tile where it is loaded, or stored, see Boxes.
  std::int64_t filled_bytes(const Operand& operand, const AccessGroup& group) const {
    const Tensor& t = tensors_[static_cast<std::size_t>(operand.tensor)];
    const std::int64_t head = static_cast<std::int64_t>(group.batch) * t.heads + group.head / t.group_size;
    const int row_tile = t.by_m ? group.m_block : group.n_block;
    const auto phase = static_cast<std::size_t>(head * t.rows + row_tile * t.tile_rows) % kPhases;
    const bool last_col = group.n_block == t.col_tiles - 1;
    return t.filled_bytes[operand.kind == AccessKind::store][phase][row_tile == t.row_tiles - 1][last_col];
  }

 private:
  /// Rows of at least 4 bytes begin in sectors as so many rows before.
  static constexpr std::size_t kPhases = kSectorBytes / 4;
  struct Tensor {
    bool touched = false;
    std::int64_t first = 0;
    int heads = 1, group_size = 1;
    bool by_m = true, of_heads = false;
    int row_tiles = 1, col_tiles = 1;
    bool has_slots = false;  // of which those are
    /// Tiles of CTAs side by side, which touch theirs one right after the other, are neighbours.
    std::int64_t row_stride = 1, col_stride = 1, tiles_of_head = 1;
    std::int64_t bytes[2][2]{};  // [last row tile][last column tile]
    std::int64_t rows = 0, tile_rows = 0;
    /// [stored][first row of all heads' modulo these][last row tile][last column tile]
    std::int64_t filled_bytes[2][kPhases][2][2]{};
    std::vector<std::int64_t> unpadded_bytes;  // of a head of each batch entry, where there is padding
    std::int64_t bytes_of_whole = 0;           // tile
  };
  void number(const TileProgram& program, TensorName name);

  const TileProgram* program_;
  std::array<Tensor, kNumTensors> tensors_{};
  bool has_boxes_ = false;
  std::uint32_t num_tiles_ = 0, num_written_tiles_ = 0;
};

}  // namespace tilescope
