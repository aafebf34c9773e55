// SPDX-License-Identifier: Apache-2.0
// Keys and values in pages, as serving engines keep them (PagedAttention, arXiv:2309.06180): those of a batch
// entry lie in pages of a pool, in any order, and a table says in which. What a kernel must move is what it
// is without pages, and the entries of the table.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Keys [i * page_size, (i + 1) * page_size) of a batch entry lie in page entries[batch * row + i] of the
/// pool.
struct KvPageTable {
  std::int64_t page_size = 0;  // keys
  std::int64_t row = 0;        // entries of a batch entry, in whole sectors
  std::int64_t pool = 0;       // pages of the pool
  std::vector<int> entries;    // kNoPage behind the last key that is no padding

  static constexpr int kNoPage = -1;
  std::int64_t page_of(std::int64_t batch, std::int64_t key) const {
    return entries[static_cast<std::size_t>(batch * row + key / page_size)];
  }
};

/// Whether a tensor of the problem lies in pages.
inline bool lies_in_pages(const AttentionProblem& problem, TensorName name) {
  return problem.page_size > 0 && ends_at_padding(name);
}

/// Of the pool in which such a tensor lies: its batch entries are pages.
TensorExtent pool_extent(const AttentionProblem& problem, TensorName name, const KvPageTable& pages);

/// Pages in an order drawn from the problem's seed, in a pool with a fifth, and at least one, that is
/// somebody else's. Precondition: the problem has pages.
KvPageTable draw_kv_pages(const AttentionProblem& problem);

/// What CTAs ask of the page table wherever they load a tile of K, of V, or of both: the sectors in which the
/// entries of its keys lie, once for each look-up (PageLookups).
WordAccesses page_words(const TileProgram& program);

}  // namespace tilescope
