// SPDX-License-Identifier: Apache-2.0
// Where the tiles of a pass lie in memory: tensors one after the other, each (batch, head, row, column), in
// physical memory as well, or there with every page at a random place.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cpu_ref/schedule/cta_walk.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

/// Pages at random places, no two at one. A page is given its place when it is first asked for: tensors that
/// a pass does not touch may be larger than any memory.
class PageTable {
 public:
  static constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;  // of CUDA's virtual memory management

  /// @param layout  0, 1, ...: layouts are independent of one another, and the same on every machine
  explicit PageTable(std::uint32_t layout);

  /// Number of the physical page that holds `page`: below 2^15, which are 64 GiB, while few are taken.
  std::int64_t place_of(std::int64_t page);
  /// Calls visit(physical address, bytes) for each page's share of the bytes from `address` on.
  template <typename Visitor>
  void for_each_piece(std::int64_t address, std::int64_t bytes, Visitor&& visit) {
    for (std::int64_t left = bytes; left > 0;) {
      const std::int64_t at = address % kPageBytes, here = std::min(left, kPageBytes - at);
      visit(place_of(address / kPageBytes) * kPageBytes + at, here);
      address += here;
      left -= here;
    }
  }

 private:
  std::uint32_t layout_, draws_ = 0;
  std::unordered_map<std::int64_t, std::int64_t> places_;  // by page
  std::vector<bool> taken_;                                // by place
};

class TileMemory {
 public:
  /// The program must outlive this.
  /// @param layout  of the pages, see PageTable; none: physical addresses are those of the tensors
  explicit TileMemory(const TileProgram& program, std::optional<std::uint32_t> layout = std::nullopt);

  /// Rows of a tensor that a row of its tiles covers, one after the other in its own addresses.
  struct Rows {
    std::int64_t address, count, row_bytes;
    std::int64_t bytes() const { return count * row_bytes; }
  };
  /// Those with the tile of `tensor` that `group` touches.
  /// @param slot  of partial results or sums; none: the group's
  Rows rows(TensorName tensor, const AccessGroup& group, std::optional<int> slot = std::nullopt) const {
    const TensorExtent& extent = extents_[static_cast<std::size_t>(tensor)];
    const bool by_m = extent.cut_by_m(), of_heads = extent.indexing == TileIndexing::head;
    const std::int64_t heads_to_one = program_->q_heads() / extent.heads;
    const std::int64_t split = extent.splits == 1 ? 0
                               : slot             ? *slot
                                      : slot_at(*program_, tensor, group.batch, group.m_block, group.n_block);
    const std::int64_t batch = of_heads ? 0 : group.batch;
    const std::int64_t head = (split * extent.batch + batch) * extent.heads + group.head / heads_to_one;
    const std::int64_t rows_of_tile = by_m ? tile_.block_m : tile_.block_n;
    const std::int64_t row = of_heads ? 0 : rows_of_tile * (by_m ? group.m_block : group.n_block);
    const std::int64_t row_bytes = extent.cols * extent.element_bytes;
    const std::int64_t address = addresses_[static_cast<std::size_t>(tensor)];
    const std::int64_t end = ends_at_padding(tensor) ? program_->problem.keys_of(group.batch) : extent.rows;
    return {address + (head * extent.rows + row) * row_bytes,
            std::clamp<std::int64_t>(end - row, 0, rows_of_tile), row_bytes};
  }
  const TensorExtent& extent(TensorName tensor) const { return extents_[static_cast<std::size_t>(tensor)]; }

  /// Calls visit(physical address, bytes) for every run of bytes of the tile of `tensor` that `group`
  /// touches: one, one a head where heads are interleaved, or one a row where a tile is narrower than the
  /// tensor, each cut where pages at random places end.
  template <typename Visitor>
  void for_each_run(TensorName tensor, const AccessGroup& group, Visitor&& visit,
                    std::optional<int> slot = std::nullopt) {
    const Rows rows = this->rows(tensor, group, slot);
    const TensorExtent& extent = this->extent(tensor);
    const std::int64_t heads = extent.cut_by_m() ? program_->interleaved_heads() : 1;
    if (heads > 1) {  // of each the same queries
      const std::int64_t bytes_of_head = extent.rows / heads * rows.row_bytes;
      const std::int64_t queries = tile_.block_m / heads, skipped = (heads - 1) * group.m_block * queries;
      for (std::int64_t head = 0; head < heads; ++head) {
        visit_physical(rows.address - skipped * rows.row_bytes + head * bytes_of_head, rows.bytes() / heads,
                       visit);
      }
      return;
    }
    if (extent.indexing != TileIndexing::mn) {
      visit_physical(rows.address, rows.bytes(), visit);
      return;
    }
    const std::int64_t col = std::int64_t{group.n_block} * tile_.block_n;
    const std::int64_t cols = std::min<std::int64_t>(tile_.block_n, extent.cols - col);
    std::int64_t address = rows.address + col * extent.element_bytes;
    for (std::int64_t i = 0; i < rows.count; ++i, address += rows.row_bytes) {
      visit_physical(address, cols * extent.element_bytes, visit);
    }
  }

 private:
  template <typename Visitor>
  void visit_physical(std::int64_t address, std::int64_t bytes, Visitor&& visit) {
    if (pages_) {
      pages_->for_each_piece(address, bytes, visit);
    } else {
      visit(address, bytes);
    }
  }

  const TileProgram* program_;
  TileShape tile_;  // that is accessed at once
  std::array<TensorExtent, kNumTensors> extents_;
  std::array<std::int64_t, kNumTensors> addresses_;  // of a tensor's first byte
  std::optional<PageTable> pages_;
};

}  // namespace tilescope
