// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/tiles/tile_numbering.hpp"

#include <limits>

namespace tilescope {

TileNumbering::TileNumbering(const TileProgram& program) : program_(&program) {
  std::array<bool, kNumTensors> touched{}, written{};
  const auto look = [&](const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      touched[static_cast<std::size_t>(operand.tensor)] = true;
      if (operand.kind != AccessKind::load) written[static_cast<std::size_t>(operand.tensor)] = true;
    }
  };
  look(program.init);
  look(program.prologue);
  for (const std::vector<Operand>& phase : program.phases) look(phase);
  look(program.epilogue);
  for (const bool writes : {true, false}) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (touched[i] && written[i] == writes) number(program, static_cast<TensorName>(i));
    }
    if (writes) num_written_tiles_ = num_tiles_;
  }
}

void TileNumbering::number(const TileProgram& program, TensorName name) {
  const TensorExtent extent = program.extent(name);
  const bool by_n = extent.cut_by_n();
  Tensor& t = tensors_[static_cast<std::size_t>(name)];
  t.touched = true;
  t.first = num_tiles_;
  t.heads = static_cast<int>(extent.heads);
  t.group_size = static_cast<int>(program.q_heads() / extent.heads);
  t.by_m = extent.cut_by_m();
  t.of_heads = extent.indexing == TileIndexing::head;
  const TileShape tile = program.access_tile();
  const int n_tiles = num_n_blocks(program.problem.band(), tile);
  t.row_tiles = t.of_heads ? 1 : t.by_m ? ceil_div(static_cast<int>(extent.rows), tile.block_m) : n_tiles;
  t.col_tiles = t.by_m && by_n ? n_tiles : static_cast<int>(extent.splits);
  t.has_slots = extent.splits > 1;
  const bool rows_side_by_side = program.axis == Axis::q;
  t.row_stride = rows_side_by_side ? 1 : t.col_tiles;
  t.col_stride = rows_side_by_side ? t.row_tiles : 1;
  t.tiles_of_head = std::int64_t{t.row_tiles} * t.col_tiles;
  for (const bool last_row : {false, true}) {
    for (const bool last_col : {false, true}) {
      // access() clips to the matrix; a first tile that is not the last is whole.
      const int row = last_row ? t.row_tiles - 1 : 0, col = last_col ? n_tiles - 1 : 0;
      t.bytes[last_row][last_col] =
          program.access({name, AccessKind::load}, 0, 0, row, t.by_m ? col : row).bytes;
    }
  }
  t.rows = extent.rows;
  t.tile_rows = t.by_m ? tile.block_m : tile.block_n;
  has_boxes_ = !program.boxes.empty();
  const std::int64_t rest = extent.rows - (t.row_tiles - 1) * t.tile_rows;
  const auto cols_of = [&](bool last_col) -> std::int64_t {
    if (!t.by_m || !by_n) return extent.cols;
    return last_col ? extent.cols - std::int64_t{n_tiles - 1} * tile.block_n : tile.block_n;
  };
  for (std::size_t phase = 0; phase < kPhases && has_boxes_; ++phase) {
    const auto row = static_cast<std::int64_t>(phase);
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      for (const bool last_row : {false, true}) {
        for (const bool last_col : {false, true}) {
          t.filled_bytes[kind == AccessKind::store][phase][last_row][last_col] = program.filled_bytes(
              {name, kind}, 0, row, row + (last_row ? rest : t.tile_rows), cols_of(last_col));
        }
      }
    }
  }
  if (ends_at_padding(name)) {
    const std::int64_t row_bytes = extent.cols * extent.element_bytes;
    t.bytes_of_whole = tile.block_n * row_bytes;
    for (const std::int64_t keys : program.problem.key_lengths) t.unpadded_bytes.push_back(keys * row_bytes);
    if (!t.unpadded_bytes.empty()) {  // access() has them of the first entry
      const std::int64_t last = extent.rows * row_bytes - (n_tiles - 1) * t.bytes_of_whole;
      t.bytes[0][0] = t.bytes[0][1] = n_tiles == 1 ? last : t.bytes_of_whole;
      t.bytes[1][0] = t.bytes[1][1] = last;
    }
  }
  const std::int64_t end = t.first + extent.batch * extent.heads * t.row_tiles * t.col_tiles;
  if (end >= std::numeric_limits<std::uint32_t>::max()) {
    throw BadInput("tile", std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n),
                   "too small to replay this problem: it has 2^32 tiles or more");
  }
  num_tiles_ = static_cast<std::uint32_t>(end);
}

}  // namespace tilescope
