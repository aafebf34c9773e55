// SPDX-License-Identifier: Apache-2.0
// How rows of latent queries and keys come to shared memory, and where the keys are found.
#pragma once

#include "gpu/kernels/decode/mla.hpp"
#include "gpu/primitives/sm80/paged_tile.cuh"

namespace tilescope::sm80 {

using LatentTile = SharedTile<MlaShape::kHeadDim>;
/// A row in global memory, at 16 bytes; where there is none, the tile is zero.
struct LatentRow {
  const std::uint16_t* from;  // may be read from
  bool exists;
};

/// Starts copying rows: a thread has the same 16 bytes of each 128 of every 32nd row. Beyond the columns
/// the tile is zero.
template <int kRows, typename RowOf>
__device__ __forceinline__ void load_latent_rows(LatentTile tile, int head_dim, int thread, RowOf row_of) {
  constexpr int kLanes = 8, kStep = MlaShape::kThreads / kLanes;
  // As in load_tile(): found again, rather than carried through the caller's loop.
  asm volatile("" : "+r"(thread));
  const int chunk = thread % kLanes;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    const int row = i + thread / kLanes;
    if (kRows < kStep && row >= kRows) return;
    const LatentRow latent = row_of(row);
    const std::uint32_t to = tile.chunk_address(row, chunk);
#pragma unroll
    for (int group = 0; group < LatentTile::kChunks / kLanes; ++group) {
      const int col = 8 * (kLanes * group + chunk);
      const bool exists = latent.exists && col < head_dim;
      copy_async_16(to + 16 * kLanes * group, latent.from + (exists ? col : 0), exists);
    }
  }
}

/// Finds rows of latent keys: one after the other, or in pages.
template <bool kPaged>
struct LatentKeys {
  using Pages = PagesAhead<MlaShape::kKeys, MlaShape::kPagesAhead>;

  const DeviceTensor& keys;
  Pages pages;
  int batch, kv_head, end, log2_size;

  __device__ LatentKeys(const KernelArguments& args, const CtaWork& work, int end, unsigned char* pages)
      : keys(args[TensorName::k]),
        pages(reinterpret_cast<int*>(pages), args.kv_pages, work.batch),
        batch(work.batch),
        kv_head(work.kv_head),
        end(end),
        log2_size(args.kv_pages.log2_size) {}

  /// Starts copying what finds the tile of a step, ahead of it.
  __device__ __forceinline__ void find(int step, int first_key, int thread) const {
    if constexpr (kPaged) pages.copy(step, first_key, thread);
  }
  __device__ __forceinline__ void load(LatentTile tile, int step, int first_key, int head_dim,
                                       int thread) const {
    if constexpr (kPaged) {
      const int* const of_step = pages.of_step(step, first_key);
      const int mask = (1 << log2_size) - 1, in_page = first_key & mask;
      load_latent_rows<MlaShape::kKeys>(tile, head_dim, thread, [&](int row) -> LatentRow {
        const bool exists = first_key + row < end;
        const int key = exists ? in_page + row : 0;
        const int page = exists ? of_step[key >> log2_size] : 0;
        return {keys.row<const std::uint16_t>(page, kv_head, key & mask), exists};
      });
    } else {
      load_latent_rows<MlaShape::kKeys>(tile, head_dim, thread, [&](int row) -> LatentRow {
        const bool exists = first_key + row < end;
        return {keys.row<const std::uint16_t>(batch, kv_head, exists ? first_key + row : 0), exists};
      });
    }
  }
};

}  // namespace tilescope::sm80
