// SPDX-License-Identifier: Apache-2.0
// Keys and values that lie in pages (PagedAttention, arXiv:2309.06180): the entries of the page table come to
// shared memory ahead of the tiles whose rows they find.
#pragma once

#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/sm80/tile_copy.cuh"

namespace tilescope::sm80 {

/// The pages of the tiles that a CTA walks. Their entries come to shared memory in the copies of the tile
/// kAhead before, so that whoever has waited for that one finds them, and no thread waits for an entry alone.
/// @tparam kAhead  tiles that are under way while one is computed
template <int kKeys, int kAhead>
struct PagesAhead {
  static constexpr int kAtOnce = 4;  // entries, 16 bytes: past L1, so that a tile asks L2 for its sector once
  static constexpr int kMost = max_of(kAtOnce, kKeys / static_cast<int>(kLeastPageSize));  // in a slot
  static constexpr int kSlots = 2 * kAhead;

  int* slots;          // in shared memory, kSlots times kMost, at 16 bytes
  const int* entries;  // of the batch entry, at 16 bytes
  int count, log2_size;

  __device__ PagesAhead(int* slots, const DeviceKvPages& pages, int batch)
      : slots(slots),
        entries(pages.entries + static_cast<std::int64_t>(batch) * pages.row),
        count(pages.row),
        log2_size(pages.log2_size) {}

  /// Starts copying the entries of a step's tile.
  __device__ __forceinline__ void copy(int step, int first_key, int thread) const {
    const int first = (first_key >> log2_size & ~(kAtOnce - 1)) + kAtOnce * thread;
    if (kAtOnce * thread >= max(1, kKeys >> log2_size)) return;
    copy_async_16(shared_address(of(step) + kAtOnce * thread), entries + first, first < count);
  }
  /// The page of a step's first key, and behind it those of the keys that follow.
  __device__ __forceinline__ const int* of_step(int step, int first_key) const {
    return of(step) + (first_key >> log2_size & (kAtOnce - 1));
  }

 private:
  __device__ __forceinline__ int* of(int step) const { return slots + step % kSlots * kMost; }
};

/// One head of a pool of pages, rows of 16 bits.
struct PoolRows {
  const uint4* from;  // of page 0
  std::uint32_t page_chunks;
  int row_chunks;

  __device__ __forceinline__ PoolRows(const DeviceTensor& pool, int head)
      : from(reinterpret_cast<const uint4*>(pool.head<std::uint16_t>(0, head))),
        page_chunks(static_cast<std::uint32_t>(pool.batch_stride / 8)),
        row_chunks(static_cast<int>(pool.row_stride / 8)) {}
  __device__ __forceinline__ std::uint64_t chunks_to(std::uint32_t page, int row) const {
    return std::uint64_t{page} * page_chunks + static_cast<std::uint32_t>(row * row_chunks);
  }
};

/// Calls copy(row of the tile, its page, its row in there, whether it exists) for the rows of a tile of one
/// head that a thread copies a 16-byte chunk of each: every kRowStep-th.
/// @param pages  of the tile's keys, in shared memory  @param thread  hidden from the optimiser
template <int kRows, int kRowStep, typename Copy>
__device__ __forceinline__ void for_each_paged_row(const int* pages, int log2_size, int first_key, int rows,
                                                   int first_row, Copy copy) {
  static_assert(kRows % kRowStep == 0);
  const int mask = (1 << log2_size) - 1, in_page = (first_key & mask) + first_row;
#pragma unroll 4
  for (int i = 0; i < kRows; i += kRowStep) {
    const int key = in_page + i;
    const bool exists = first_row + i < rows;
    copy(first_row + i, exists ? static_cast<std::uint32_t>(pages[key >> log2_size]) : 0u, key & mask,
         exists);
  }
}

/// Starts copying the rows of a tile of K or V, of one head. Beyond the keys and columns the tile is zero.
/// Strides are whole chunks.
/// @param pages  of the tile's keys, in shared memory
template <int kRows, int kThreads, int kCols>
__device__ __forceinline__ void load_paged_tile(SharedTile<kCols> tile, const DeviceTensor& pool, int head,
                                                const int* pages, int log2_size, int first_key, int keys,
                                                int head_dim, int thread) {
  constexpr int kChunks = SharedTile<kCols>::kChunks;
  static_assert(kThreads % kChunks == 0);
  // As in load_tile(): found again, rather than carried through the caller's loop.
  asm volatile("" : "+r"(thread));
  const int chunk = thread % kChunks, rows = chunk * 8 < head_dim ? keys - first_key : 0;
  const PoolRows from(pool, head);
  for_each_paged_row<kRows, kThreads / kChunks>(
      pages, log2_size, first_key, rows, thread / kChunks,
      [&](int row, std::uint32_t page, int row_of_page, bool exists) {
        copy_async_16(tile.chunk_address(row, chunk), from.from + chunk + from.chunks_to(page, row_of_page),
                      exists);
      });
}

/// The same of K and of V, each row of which is found once where their pools lie alike.
template <int kRows, int kThreads, int kCols>
__device__ __forceinline__ void load_paged_tiles(SharedTile<kCols> k_tile, SharedTile<kCols> v_tile,
                                                 const DeviceTensor& k_pool, const DeviceTensor& v_pool,
                                                 int head, const int* pages, int log2_size, int first_key,
                                                 int keys, int head_dim, int thread) {
  constexpr int kChunks = SharedTile<kCols>::kChunks;
  static_assert(kThreads % kChunks == 0);
  asm volatile("" : "+r"(thread));
  const int chunk = thread % kChunks, rows = chunk * 8 < head_dim ? keys - first_key : 0;
  const PoolRows k(k_pool, head), v(v_pool, head);
  if (k.page_chunks != v.page_chunks || k.row_chunks != v.row_chunks) {
    load_paged_tile<kRows, kThreads>(k_tile, k_pool, head, pages, log2_size, first_key, keys, head_dim,
                                     thread);
    return load_paged_tile<kRows, kThreads>(v_tile, v_pool, head, pages, log2_size, first_key, keys, head_dim,
                                            thread);
  }
  for_each_paged_row<kRows, kThreads / kChunks>(
      pages, log2_size, first_key, rows, thread / kChunks,
      [&](int row, std::uint32_t page, int row_of_page, bool exists) {
        const std::uint64_t chunks = chunk + k.chunks_to(page, row_of_page);
        copy_async_16(k_tile.chunk_address(row, chunk), k.from + chunks, exists);
        copy_async_16(v_tile.chunk_address(row, chunk), v.from + chunks, exists);
      });
}

}  // namespace tilescope::sm80
