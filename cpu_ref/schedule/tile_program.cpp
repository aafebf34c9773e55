// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/tile_program.hpp"

#include <algorithm>

#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

void ProgramOptions::set_tile(Direction direction, TileShape tile) {
  for (int i = 0; i < kNumPasses; ++i) {
    const auto pass = static_cast<PassName>(i);
    const bool forward = pass == PassName::forward || pass == PassName::scores || pass == PassName::softmax ||
                         pass == PassName::output;
    if (forward == (direction == Direction::forward)) (*this)[pass].tile = tile;
  }
}

TensorExtent TileProgram::extent(TensorName tensor) const {
  TensorExtent extent = tensor_extent(problem, tensor, slots_of(*this, tensor));
  if (extent.indexing == TileIndexing::head) {
    extent.cols = query_heads_of_cta();
    extent.heads /= extent.cols;
  }
  if (!pack_gqa || extent.indexing != TileIndexing::m) return extent;
  extent.rows *= extent.heads / problem.heads_kv;
  extent.heads = problem.heads_kv;
  return extent;
}

int TileProgram::num_blocks() const {
  if (axis == Axis::kv) return num_n_blocks(problem.band(), tile);
  return ceil_div(static_cast<int>(q_rows()), tile.block_m);
}

HandOut TileProgram::hand_out() const {
  if (work_counter) return HandOut::to_who_ends;
  return persistent ? HandOut::there_and_back : HandOut::to_who_retires;
}

int TileProgram::kv_tiles_before(int batch, int m_block, int n_block) const {
  const TileRuns tiles = problem.mask_of(batch).kv_tiles(access_tile(), m_block);
  const int before = tiles.count_before(n_block);
  return ordered && grid.descends() ? tiles.count() - 1 - before : before;
}

TileRuns TileProgram::inner_tiles(const Mask& mask, int block) const {
  if (name == PassName::combine) return TileRange{0, splits.count, 0, splits.count};
  if (adds_slots(*this)) {
    const int filled = filled_slots(*this, mask, block);
    return TileRange{0, filled, 0, filled};
  }
  if (interleaves_heads) return mask.kv_tiles(tile_of_queries(), block);
  if (pack_gqa) return mask.packed_kv_tiles(tile, static_cast<int>(q_rows()), block);
  return axis == Axis::q ? mask.kv_tiles(tile, block) : mask.q_tiles(tile, block);
}

bool TileProgram::has_prologue(int batch, int block) const {
  const bool sums_may_lack = name == PassName::convert && dq_start != DqStart::cleared;
  return (phases.empty() && !sums_may_lack) || !inner_tiles(batch, block).empty();
}

TileShape TileProgram::access_tile() const {
  const TileShape part = part_of(tile, diagonal_slices);
  return axis == Axis::q ? TileShape{tile.block_m, part.block_n} : TileShape{part.block_m, tile.block_n};
}

TileRuns TileProgram::inner_slices(const Mask& mask, int block) const {
  if (diagonal_slices == 1) return inner_tiles(mask, block);
  return axis == Axis::q ? mask.kv_tiles(access_tile(), block) : mask.q_tiles(access_tile(), block);
}

CtaWork TileProgram::work(std::int64_t cta) const {
  const HeadCounts heads{static_cast<int>(q_heads()), static_cast<int>(problem.heads_kv), head_splits};
  const CtaHeads counted = kv_heads ? CtaHeads::kv : CtaHeads::query;
  return cta_work<true>(grid, heads, counted, whole_head ? num_blocks() : 1, cta);
}

int TileProgram::heads_per_cta() const {
  return kv_heads ? static_cast<int>(problem.group_size()) / head_splits : 1;
}

int TileProgram::query_heads_of_cta() const {
  return pack_gqa ? static_cast<int>(problem.group_size()) : heads_per_cta();
}

std::int64_t TileProgram::visited_tiles() const {
  if (phases.empty()) return 0;
  std::int64_t tiles = 0;
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    const Mask mask = walked_mask(entry);
    std::int64_t here = 0;
    for (int block = 0; block < num_blocks(); ++block) here += inner_tiles(mask, block).count();
    tiles += here * entries;
  });
  return tiles * q_heads();
}

std::int64_t TileProgram::computed_entries() const {
  if (diagonal_slices == 1) return visited_tiles() * tile.block_m * tile.block_n;
  if (phases.empty()) return 0;
  const TileShape part = part_of(tile, diagonal_slices);
  std::int64_t entries = 0;
  problem.for_each_length([&](std::int64_t count, std::int64_t entry) {
    const VisibleBand band = problem.band(entry);
    for (int m_part = 0; m_part < num_m_blocks(band, part); ++m_part) {
      const Interval keys = computed_keys(band, part, m_part);
      entries += count * part.block_m * (keys.end - keys.begin);
    }
  });
  return entries * problem.heads;
}

std::int64_t TileProgram::tile_bytes(TensorName tensor) const {
  const TensorExtent extent = this->extent(tensor);
  const std::int64_t rows = extent.cut_by_m() ? tile.block_m : extent.cut_by_n() ? tile.block_n : 1;
  const std::int64_t cols = extent.indexing == TileIndexing::mn ? tile.block_n : extent.cols;
  return rows * cols * extent.element_bytes;
}

std::int64_t TileProgram::shared_bytes(int stages) const {
  std::int64_t bytes = 0;
  for (const Operand& operand : prologue) {
    if (operand.kind == AccessKind::load) bytes += tile_bytes(operand.tensor);
  }
  for (const auto& phase : phases) {
    for (const Operand& operand : phase) {
      if (operand.kind == AccessKind::load) bytes += stages * tile_bytes(operand.tensor);
    }
  }
  return bytes;
}

bool TileProgram::evict_first(TensorName tensor) const {
  return std::any_of(boxes.begin(), boxes.end(),
                     [tensor](const Boxes& one) { return one.tensor == tensor && one.evict_first; });
}

const Boxes* TileProgram::boxes_of(const Operand& operand) const {
  const auto found = std::find_if(boxes.begin(), boxes.end(), [&operand](const Boxes& one) {
    return one.tensor == operand.tensor &&
           (operand.kind == AccessKind::store ? one.stored()
                                              : one.loaded() && operand.kind == AccessKind::load);
  });
  return found == boxes.end() ? nullptr : &*found;
}

std::int64_t TileProgram::filled_bytes(const Operand& operand, std::int64_t head, std::int64_t begin,
                                       std::int64_t end, std::int64_t cols) const {
  const Boxes* const found = boxes_of(operand);
  if (found == nullptr || end <= begin) return 0;
  const TensorExtent extent = this->extent(operand.tensor);
  if (extent.indexing == TileIndexing::head) return extent.cols * (found->panel_bytes - extent.element_bytes);
  const TileShape accessed = access_tile();
  const std::int64_t row_bytes = (cols > 0 ? cols : extent.cols) * extent.element_bytes;
  if (extent.indexing == TileIndexing::n) {
    return found->beside_rows(head * extent.rows + begin, end - begin, accessed.block_n, row_bytes,
                              extent.cols == 1);
  }
  const std::int64_t heads = interleaved_heads(), rows_of_head = extent.rows / heads;
  std::int64_t beside = 0;
  for (std::int64_t i = 0; i < heads; ++i) {
    beside += found->beside_rows((head * heads + i) * rows_of_head + begin / heads, (end - begin) / heads,
                                 accessed.block_m / heads, row_bytes, extent.cols == 1);
  }
  return beside;
}

TileAccess TileProgram::access(const Operand& operand, int batch, int head, int m_block, int n_block) const {
  const TensorExtent extent = this->extent(operand.tensor);
  const auto clipped = [](std::int64_t total, int block, int size) {
    return std::clamp<std::int64_t>(total - static_cast<std::int64_t>(block) * size, 0, size);
  };
  const bool by_m = extent.cut_by_m(), by_n = extent.cut_by_n();
  const TileShape accessed = access_tile();
  const std::int64_t keys = ends_at_padding(operand.tensor) ? problem.keys_of(batch) : extent.rows;
  const std::int64_t rows = by_m   ? clipped(extent.rows, m_block, accessed.block_m)
                            : by_n ? clipped(keys, n_block, accessed.block_n)
                                   : extent.rows;
  const std::int64_t cols = by_m && by_n ? clipped(extent.cols, n_block, accessed.block_n) : extent.cols;
  const int tensor_head = head / static_cast<int>(q_heads() / extent.heads);
  const std::int64_t first =
      by_m ? std::int64_t{m_block} * accessed.block_m : std::int64_t{n_block} * accessed.block_n;
  const int slot = extent.splits > 1 ? slot_at(*this, operand.tensor, batch, m_block, n_block) : 0;
  const std::int64_t beside =
      boxes.empty()
          ? 0
          : filled_bytes(operand, (std::int64_t{slot} * problem.batch + batch) * extent.heads + tensor_head,
                         first, first + rows, cols);
  return {operand.tensor,
          operand.kind,
          extent.indexing == TileIndexing::head ? 0 : batch,
          tensor_head,
          by_m                ? m_block
          : extent.splits > 1 ? slot
                              : -1,
          by_n                                               ? n_block
          : extent.splits > 1 || are_partial(operand.tensor) ? slot
                                                             : -1,
          rows * cols * extent.element_bytes,
          beside};
}

TileShape flash1_tile_rule(std::int64_t sram_elements, std::int64_t head_dim) {
  if (sram_elements < 1) throw BadInput("sram", std::to_string(sram_elements), "must be at least 1 element");
  const std::int64_t block_n = (sram_elements + 4 * head_dim - 1) / (4 * head_dim);
  return {static_cast<int>(std::min(block_n, head_dim)), static_cast<int>(block_n)};
}

std::int64_t flash1_sram_elements_needed(TileShape tile, std::int64_t head_dim) {
  const std::int64_t m = tile.block_m, n = tile.block_n;
  return 2 * m * head_dim + 2 * n * head_dim + m * n;
}

}  // namespace tilescope
