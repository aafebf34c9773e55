// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/covered_rows.hpp"

#include <algorithm>

#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

/// Rows of the matrix that the tiles [begin, end) cover.
std::int64_t covered_rows(int begin, int end, int tile_rows, std::int64_t rows) {
  if (end <= begin) return 0;
  const auto edge = [&](int tile) { return std::min(rows, static_cast<std::int64_t>(tile) * tile_rows); };
  return edge(end) - edge(begin);
}

namespace {

std::int64_t slot_rows(const TileProgram& program, const Mask& mask) {
  const DqSlots slots = dq_slots(program);
  std::int64_t rows = 0;
  for (int m_block = 0; slots.count > 1 && m_block < num_m_blocks(program.problem.band(), program.tile);
       ++m_block) {
    rows += slots.filled(mask.kv_tiles(program.tile, m_block).count()) *
            covered_rows(m_block, m_block + 1, program.tile.block_m, program.problem.seqlen_q);
  }
  return rows;
}

/// @param batch  entry
/// @param key_rows  of the tensor: all, or those that are no padding
HeadSums head_sums(const TileProgram& program, std::int64_t batch, std::int64_t key_rows) {
  const AttentionProblem& p = program.problem;
  const bool q_axis = program.axis == Axis::q;
  const TileShape tile = program.access_tile();
  const int owned_size = q_axis ? tile.block_m : tile.block_n;
  const int inner_size = q_axis ? tile.block_n : tile.block_m;
  const std::int64_t owned_total = q_axis ? program.q_rows() : key_rows;
  const std::int64_t inner_total = q_axis ? key_rows : p.seqlen_q;
  HeadSums sums;
  const Mask mask = program.walked_mask(batch);
  sums.slot_rows = slot_rows(program, mask);
  std::vector<Interval> visited;  // inner tiles
  for (int block = 0; block < program.num_blocks(); ++block) {
    const std::int64_t rows = covered_rows(block, block + 1, owned_size, owned_total);
    sums.owned_rows += rows;
    if (program.phases.empty()) {
      const bool prologue = program.has_prologue(static_cast<int>(batch), block);
      if (prologue) sums.prologue_rows += rows;
      sums.prologues += prologue ? 1 : 0;
      sums.busy_rows = sums.prologue_rows;
      continue;
    }
    const TileRuns inner = program.inner_slices(mask, block);
    if (inner.empty()) continue;
    std::int64_t inner_rows = 0;
    for (const TileRange& run : inner.runs()) {
      inner_rows += covered_rows(run.begin, run.end, inner_size, inner_total);
      visited.push_back({run.begin, run.end});
    }
    sums.busy_rows += rows;
    const int prologues = program.splits_walk() ? program.splits.busy(inner) : 1;
    sums.prologue_rows += rows * program.splits.busy(inner);
    sums.prologues += prologues;
    sums.owned_step_rows += rows * inner.count();
    sums.inner_step_rows += inner_rows;
    sums.area += rows * inner_rows;
  }
  std::sort(visited.begin(), visited.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int seen_end = 0;
  for (const Interval& tiles : visited) {
    sums.inner_rows += covered_rows(std::max(tiles.begin, seen_end), tiles.end, inner_size, inner_total);
    seen_end = std::max(seen_end, tiles.end);
  }
  return sums;
}

}  // namespace

std::vector<EqualEntries> entries_of(const TileProgram& program) {
  const AttentionProblem& p = program.problem;
  std::vector<EqualEntries> all;
  p.for_each_length([&](std::int64_t count, std::int64_t entry) {
    const HeadSums whole = head_sums(program, entry, p.seqlen_k);
    const std::int64_t keys = p.keys_of(entry);
    all.push_back({count, whole, keys == p.seqlen_k ? whole : head_sums(program, entry, keys)});
  });
  return all;
}

}  // namespace tilescope
