// SPDX-License-Identifier: Apache-2.0
// Keys and values that lie in pages (PagedAttention, arXiv:2309.06180): the entries of the page table come to
// shared memory ahead of the tiles whose rows they find.
#pragma once

#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/sm80/tile_copy.cuh"

namespace tilescope::sm80 {

/// The page table's row of a batch entry.
struct PageRow {
  const int* entries;
  int count, log2_size;

  __device__ PageRow(const DeviceKvPages& pages, int batch)
      : entries(pages.entries + static_cast<std::int64_t>(batch) * pages.row),
        count(pages.row),
        log2_size(pages.log2_size) {}

  /// Entries of a tile of kKeys keys: they lie in one sector.
  template <int kKeys>
  __device__ int in_tile() const {
    return max(1, kKeys >> log2_size);
  }
  /// Past L1, so that a tile asks L2 for its sector whatever tiles before it have asked for.
  template <int kKeys>
  __device__ int of_tile(int first_key, int index) const {
    const int place = (first_key >> log2_size) + index;
    return index < in_tile<kKeys>() && place < count ? __ldcg(entries + place) : KvPageTable::kNoPage;
  }
};

/// Starts copying the rows of a tile of K or V, of one head: each thread takes one 16-byte chunk of every
/// kRowStep-th row. Beyond the keys and columns the tile is zero.
/// @param pages  of the tile's keys, in shared memory
template <int kRows, int kThreads, int kCols>
__device__ __forceinline__ void load_paged_tile(SharedTile<kCols> tile, const DeviceTensor& pool, int head,
                                                const int* pages, int log2_size, int first_key, int keys,
                                                int head_dim, int thread) {
  constexpr int kChunks = SharedTile<kCols>::kChunks;
  constexpr int kRowStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kRowStep == 0);
  // As in load_tile(): found again, rather than carried through the caller's loop.
  asm volatile("" : "+r"(thread));
  const int chunk = thread % kChunks, in_page = first_key & ((1 << log2_size) - 1);
#pragma unroll 4
  for (int i = 0; i < kRows; i += kRowStep) {
    const int row = i + thread / kChunks, key = in_page + row;
    const bool exists = chunk * 8 < head_dim && first_key + row < keys;
    const int page = exists ? pages[key >> log2_size] : 0;
    copy_async_16(
        tile.chunk_address(row, chunk),
        pool.head<std::uint16_t>(page, head) + (key & ((1 << log2_size) - 1)) * pool.row_stride + chunk * 8,
        exists);
  }
}

}  // namespace tilescope::sm80
