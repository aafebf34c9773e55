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

/// Starts copying the rows of a tile of K and one of V, of one head, each thread a 16-byte chunk of every
/// kRowStep-th row. Beyond the keys and columns the tiles are zero. Strides are whole chunks. Rows of
/// kLeastPageSize keys lie in one page, whatever its size, as tiles and pages begin at multiples of it: so a
/// page is looked up once for them, and the lookups of a tile come before its first copy, whose place the
/// compiler moves no load past.
/// @param pages  of the tile's keys, in shared memory  @param thread  hidden from the optimiser
template <int kRows, int kThreads, int kCols>
__device__ __forceinline__ void load_paged_tiles(SharedTile<kCols> k_tile, SharedTile<kCols> v_tile,
                                                 const DeviceTensor& k_pool, const DeviceTensor& v_pool,
                                                 int head, const int* pages, int log2_size, int first_key,
                                                 int keys, int head_dim, int thread) {
  constexpr int kChunks = SharedTile<kCols>::kChunks, kRowStep = kThreads / kChunks;
  constexpr int kTogether = max_of(kRowStep, static_cast<int>(kLeastPageSize)), kParts = kRows / kTogether;
  static_assert(kThreads % kChunks == 0 && kTogether % kRowStep == 0 && kRows % kTogether == 0);
  // As in load_tile(): found again, rather than carried through the caller's loop.
  asm volatile("" : "+r"(thread));
  const int chunk = thread % kChunks, row = thread / kChunks, mask = (1 << log2_size) - 1;
  const int rows = chunk * 8 < head_dim ? keys - first_key - row : 0, in_page = (first_key & mask) + row;
  std::uint32_t page[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    page[i] = static_cast<std::uint32_t>(pages[in_page + kTogether * i >> log2_size]);
  }
  const auto load = [&](SharedTile<kCols> tile, const DeviceTensor& pool) {
    const auto page_chunks = static_cast<std::uint32_t>(pool.batch_stride / 8);
    const auto row_chunks = static_cast<int>(pool.row_stride / 8);
    const uint4* const of_head = reinterpret_cast<const uint4*>(pool.head<std::uint16_t>(0, head)) + chunk;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const uint4* from =
          of_head + (std::uint64_t{page[i]} * page_chunks +
                     static_cast<std::uint32_t>((in_page + kTogether * i & mask) * row_chunks));
      // Of rows that do not exist nothing is read, wherever their page is said to be.
#pragma unroll
      for (int j = 0; j < kTogether; j += kRowStep) {
        copy_async_16(tile.chunk_address(row + kTogether * i + j, chunk), from, kTogether * i + j < rows);
        from += kRowStep * row_chunks;
      }
    }
  };
  load(k_tile, k_pool);
  load(v_tile, v_pool);
}

}  // namespace tilescope::sm80
