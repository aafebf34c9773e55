// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/tile_lines.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "analysis/model/replay/cache/split_l2.hpp"

namespace tilescope {
namespace {

/// Lines of a row of tiles, in the order of the tiles.
class LinesByColumn {
 public:
  explicit LinesByColumn(std::size_t columns) : ends_(columns) {}

  void add(std::size_t column, LineSample::Line line) {
    found_.push_back({column, line});
    ++ends_[column];
  }
  /// Numbers them, tile after tile, and forgets them.
  /// @param stride  from the range of a tile to that of the next
  void append_to(LineSample& sample, LineSample::Range* ranges, std::size_t stride) {
    LineSample::Number begin = sample.size();
    LineSample::Number count = 0;
    for (std::size_t column = 0; column < ends_.size(); ++column) {
      ranges[column * stride] = {begin + count, begin + count + ends_[column]};
      count += std::exchange(ends_[column], count);
    }
    sorted_.resize(found_.size());
    for (const Found& one : found_) sorted_[ends_[one.column]++] = one.line;
    for (const LineSample::Line line : sorted_) sample.append(line);
    found_.clear();
    std::fill(ends_.begin(), ends_.end(), 0);
  }

 private:
  struct Found {
    std::size_t column;
    LineSample::Line line;
  };
  std::vector<Found> found_;
  std::vector<LineSample::Line> sorted_;
  std::vector<LineSample::Number> ends_;  // lines of each column, and then where they end
};

}  // namespace

TileLines::TileLines(const TileProgram& program, const TileNumbering& numbers, const SplitL2Shape& shape,
                     std::optional<std::uint32_t> layout)
    : numbers_(numbers),
      tile_(program.access_tile()),
      program_(&program),
      placed_at_once_(!layout),
      memory_(program, layout),
      sample_(shape),
      ranges_(numbers.num_tiles()) {
  if (!placed_at_once_) return;
  for (int name = 0; name < kNumTensors; ++name) {
    if (numbers.numbers(static_cast<TensorName>(name))) place_all(static_cast<TensorName>(name));
  }
}

LineSample::Range TileLines::place(TensorName tensor, const AccessGroup& group, std::uint32_t tile,
                                   std::optional<int> slot) {
  LineSample::Range& lines = ranges_[tile];
  lines.begin = sample_.size();
  const bool evict_first = program_->evict_first(tensor);
  memory_.for_each_run(
      tensor, group,
      [this, evict_first](std::int64_t address, std::int64_t bytes) {
        sample_.place(address, bytes, evict_first);
      },
      slot);
  lines.end = sample_.size();
  return lines;
}

void TileLines::place_all(TensorName tensor) {
  const TensorExtent extent = memory_.extent(tensor);
  const bool by_m = !extent.cut_by_n() || extent.cut_by_m();
  const int n_tiles = num_n_blocks(program_->problem.band(), tile_);
  const int rows_of_tiles = by_m ? ceil_div(static_cast<int>(extent.rows), tile_.block_m) : n_tiles;
  const std::int64_t tile_row_bytes = std::int64_t{tile_.block_n} * extent.element_bytes;
  LinesByColumn columns(static_cast<std::size_t>(n_tiles));
  const auto query_heads = static_cast<int>(program_->q_heads() / extent.heads);  // to one of the tensor
  for (int batch = 0; batch < extent.batch; ++batch) {
    for (int head = 0; head < extent.heads; ++head) {
      for (int row = 0; row < rows_of_tiles; ++row) {
        AccessGroup group{{}, batch, head * query_heads, by_m ? row : 0, by_m ? 0 : row};
        if (extent.indexing != TileIndexing::mn && extent.splits > 1) {
          for (int slot = 0; slot < extent.splits; ++slot)
            place(tensor, group, numbers_.tile(tensor, group, slot).number, slot);
          continue;
        }
        const std::uint32_t first = numbers_.tile(tensor, group).number;
        if (extent.indexing != TileIndexing::mn) {
          place(tensor, group, first);
          continue;
        }
        const TileMemory::Rows rows = memory_.rows(tensor, group);
        sample_.for_each_line(rows.address, rows.bytes(), [&](std::int64_t address, LineSample::Line line) {
          const std::int64_t in_row = (address - rows.address) % rows.row_bytes;
          columns.add(static_cast<std::size_t>(in_row / tile_row_bytes), line);
        });
        const AccessGroup second{{}, batch, head * query_heads, row, 1};
        columns.append_to(sample_, &ranges_[first], numbers_.tile(tensor, second).number - first);
      }
    }
  }
}

bool TileLines::all_fit(const SplitL2Shape& shape) const {
  const std::int64_t dirty_ways = shape.dirty_ways.value_or(shape.ways);
  std::array<std::int64_t, LineSample::kSets> held{};
  std::array<std::array<std::int64_t, LineSample::kSets>, kL2Partitions> dirty{};
  for (LineSample::Number number = 0; number < sample_.size(); ++number) {
    if (++held[sample_[number].set] > SplitL2::young_ways(shape.ways, shape.dirty_ways)) return false;
  }
  for (std::uint32_t tile = 0; tile < numbers_.num_written_tiles(); ++tile) {
    for (LineSample::Number number = ranges_[tile].begin; number < ranges_[tile].end; ++number) {
      const LineSample::Line line = sample_[number];
      if (++dirty[line.home][line.set] > dirty_ways) return false;
    }
  }
  return true;
}

std::int64_t TileLines::memory_bytes(const TileProgram& program, const TileNumbering& numbers,
                                     const SplitL2Shape& shape) {
  std::int64_t bytes = 0;
  for (int name = 0; name < kNumTensors; ++name) {
    const auto tensor = static_cast<TensorName>(name);
    if (numbers.numbers(tensor)) bytes += program.extent(tensor).bytes();
  }
  const std::int64_t sets = std::max(shape.sets(), LineSample::kSets);  // fewer are refused by LineSample
  const std::int64_t lines = bytes / LineSample::kLineBytes / sets * LineSample::kSets;
  return numbers.num_tiles() * static_cast<std::int64_t>(sizeof(LineSample::Range)) +
         2 * lines * static_cast<std::int64_t>(sizeof(LineSample::Line));  // a vector doubles
}

}  // namespace tilescope
