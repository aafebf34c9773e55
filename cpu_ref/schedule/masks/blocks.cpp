// SPDX-License-Identifier: Apache-2.0
// Block lists: for each block of queries the blocks of keys that it sees, as in block-sparse attention
// (FlashAttention, arXiv:2205.14135, section 3.3). A kernel's tiles need not be the mask's blocks.
#include <algorithm>

#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

/// Calls visit(row of blocks, block of keys) for every number behind the size.
template <typename Visit>
void for_each_listed(const MaskRule& rule, Visit&& visit) {
  int row = -1;
  for (std::size_t i = 1; i < rule.numbers.size(); ++i) {
    if (rule.numbers[i] == kNextRow) {
      ++row;
    } else {
      visit(row, rule.numbers[i]);
    }
  }
}

std::vector<MaskRegion> blocks_regions(const AttentionProblem& problem, const VisibleBand& band) {
  const auto size = static_cast<int>(problem.mask.numbers[0]);
  std::vector<MaskRegion> regions;
  for_each_listed(problem.mask, [&](int row, std::int64_t column) {
    const Interval queries{row * size, (row + 1) * size};
    const int first = static_cast<int>(column) * size;
    const bool goes_on =
        !regions.empty() && regions.back().queries == queries && regions.back().keys.end == first;
    if (goes_on) {
      regions.back().keys.end += size;
    } else {
      regions.push_back({band, queries, {first, first + size}});
    }
  });
  return regions;
}

std::int64_t blocks_of(std::int64_t rows, std::int64_t size) { return (rows + size - 1) / size; }

void validate_blocks(const AttentionProblem& problem) {
  const std::vector<std::int64_t>& numbers = problem.mask.numbers;
  if (numbers.empty() || numbers[0] < 1 || numbers[0] > kMaxSeqlen ||
      (numbers.size() > 1 && numbers[1] != kNextRow)) {
    throw bad_mask(problem,
                   "must begin with the rows of a block, as in blocks:64;0;0,1 of two rows of blocks");
  }
  const std::int64_t rows = blocks_of(problem.seqlen_q, numbers[0]),
                     columns = blocks_of(problem.seqlen_k, numbers[0]);
  const auto listed = std::count(numbers.begin(), numbers.end(), kNextRow);
  if (listed != rows) {
    throw bad_mask(problem, "must have a list of keys for each block of queries: " + std::to_string(rows) +
                                " in all, not " + std::to_string(listed));
  }
  int last_row = -1;
  std::int64_t last_column = -1;
  for_each_listed(problem.mask, [&](int row, std::int64_t column) {
    if (row != last_row) last_column = -1;
    if (column <= last_column || column >= columns) {
      throw bad_mask(problem, "must list blocks in ascending order, each below " + std::to_string(columns) +
                                  ", not " + std::to_string(column) + " in row " + std::to_string(row));
    }
    last_row = row;
    last_column = column;
  });
  const VisibleBand band = problem.band();  // without padding, which may hide all
  if (Mask(band, blocks_regions(problem, band)).visible_pairs() > 0) return;
  throw bad_mask(problem, "must leave something to see: no query sees a key");
}

void apply_blocks_example(AttentionProblem& problem, TileShape tile) {
  const int size = std::max(2, tile.block_n * 3 / 4);
  problem.causal = true;
  problem.seqlen_q = problem.seqlen_k = 3 * size + 1;
  problem.mask = {MaskKind::blocks, {size, kNextRow, 0, kNextRow, kNextRow, 0, 2, kNextRow, 0, 1, 3}};
}

}  // namespace

MaskModel blocks_mask() {
  return {.kind = MaskKind::blocks,
          .name = "blocks",
          .form = "blocks:N;N,N,...;...",
          .summary = "blocks of N rows, and by block of queries those of keys that it sees; causal or not",
          .regions = blocks_regions,
          .validate = validate_blocks,
          .apply_example = apply_blocks_example,
          .by_rows = true};
}

}  // namespace tilescope
