// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/kv_pages.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "cpu_ref/schedule/kv_page_rows.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kEntriesASector = kSectorBytes / static_cast<std::int64_t>(sizeof(int));

/// How often a CTA looks up the pages of a tile of which it loads those operands.
std::int64_t lookups(const std::vector<Operand>& operands, PageLookups by) {
  const auto in_pages = std::ranges::count_if(operands, [](const Operand& operand) {
    return operand.kind == AccessKind::load && ends_at_padding(operand.tensor);
  });
  return by.each_operand ? in_pages : std::min<std::int64_t>(in_pages, 1);
}

/// Entries of a batch entry's row: one for each page of its keys, and to the end of the last sector.
std::int64_t entries_of_row(const AttentionProblem& problem) {
  const std::int64_t pages = ceil_div(problem.seqlen_k, problem.page_size);
  return ceil_div(pages, kEntriesASector) * kEntriesASector;
}

}  // namespace

TensorExtent pool_extent(const AttentionProblem& problem, TensorName name, const KvPageTable& pages) {
  TensorExtent extent = tensor_extent(problem, name);
  extent.batch = pages.pool;
  extent.rows = pages.page_size;
  return extent;
}

KvPageTable in_whole_sectors(const KvPageTable& table) {
  KvPageTable whole = table;
  whole.row = ceil_div(table.row, kEntriesASector) * kEntriesASector;
  const auto rows = table.row == 0 ? 0 : static_cast<std::int64_t>(table.entries.size()) / table.row;
  whole.entries.assign(static_cast<std::size_t>(rows * whole.row), KvPageTable::kNoPage);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(table.entries.begin() + row * table.row, table.row, whole.entries.begin() + row * whole.row);
  }
  return whole;
}

KvPageTable draw_kv_pages(const AttentionProblem& problem) {
  const auto pages_of = [&](std::int64_t batch) {
    return ceil_div(problem.keys_of(batch), problem.page_size);
  };
  KvPageTable table{.page_size = problem.page_size, .row = entries_of_row(problem), .pool = 0, .entries = {}};
  std::int64_t taken = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) taken += pages_of(batch);
  table.pool = taken + std::max<std::int64_t>(1, taken / 4);

  std::vector<int> pages(static_cast<std::size_t>(table.pool));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937_64 bits(problem.seed);
  for (std::size_t i = pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[bits() % (i + 1)]);

  table.entries.assign(static_cast<std::size_t>(problem.batch * table.row), KvPageTable::kNoPage);
  auto next = pages.begin();
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const auto end = next + pages_of(batch);
    std::copy(next, end, table.entries.begin() + batch * table.row);
    next = end;
  }
  return table;
}

WordAccesses page_words(const TileProgram& program) {
  const AttentionProblem& problem = program.problem;
  const PageLookups by = program.page_lookups;
  const std::int64_t of_owned = lookups(program.prologue, by);
  std::int64_t of_streamed = 0;
  for (const auto& phase : program.phases) of_streamed += lookups(phase, by);
  if (problem.page_size == 0 || of_owned + of_streamed == 0) return {};
  if (program.tile.block_n % by.parts != 0) throw std::logic_error("parts of a page look-up divide a tile");
  std::int64_t sectors = 0;
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    const std::int64_t keys = problem.keys_of(entry), keys_a_sector = problem.page_size * kEntriesASector;
    const auto of_part = [&](std::int64_t first, std::int64_t end) {
      return end <= first ? 0 : (end - 1) / keys_a_sector - first / keys_a_sector + 1;
    };
    const auto of_tile = [&](int tile) {
      const int part_keys = program.tile.block_n / by.parts;
      std::int64_t of_parts = 0;
      for (int part = 0; part < by.parts; ++part) {
        const std::int64_t first = std::int64_t{tile} * program.tile.block_n + part * part_keys;
        of_parts += of_part(first, std::min(first + part_keys, keys));
      }
      return entries * of_parts;
    };
    for (int block = 0; block < program.num_blocks(); ++block) {
      if (of_owned > 0 && program.has_prologue(static_cast<int>(entry), block)) {
        sectors += of_owned * of_tile(block);
      }
      if (of_streamed == 0) continue;
      const TileRuns tiles = program.inner_tiles(static_cast<int>(entry), block);
      for (int i = 0; i < tiles.count(); ++i) sectors += of_streamed * of_tile(tiles[i]);
    }
  });
  return {sectors * program.q_heads(), 0};
}

}  // namespace tilescope
