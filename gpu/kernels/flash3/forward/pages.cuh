// SPDX-License-Identifier: Apache-2.0
// Keys and values of flash3's forward pass that lie in pages (cpu_ref/schedule/kv_pages.hpp): a warp loads,
// each lane of it what a tile has in one page, of which it asks the table a tile ahead. (A thread alone takes
// some forty instructions a box, which wait for each other; pages of 16 keys are 32 boxes a step of 128 keys
// at head_dim 128.) Whoever computes sees the tile that it sees without pages.
#pragma once

#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// A loading lane's walk over the tiles of an item.
template <auto kShape>
struct Flash3PagesAhead {
  static constexpr int kBlockN = kShape.tile.block_n;
  int lane;
  int next = 0, current = 0, before = 0;  // pages: of the next tile, of the latest K, of the one before
  int latest = 0;                         // step of K

  /// The lane's part of a tile, from its first row on. Tiles and pages begin at multiples of such parts.
  __device__ __forceinline__ int row(const DeviceKvPages& pages) const {
    return lane * min(kBlockN, 1 << pages.log2_size);
  }
  /// Asks for the lane's page of a tile. Behind the keys, and for lanes without a part, there is none.
  __device__ __forceinline__ void ask(const Flash3PagedArguments& args, int batch, int first_key) {
    const DeviceKvPages& pages = args.pages;
    const int key = first_key + row(pages);
    next = KvPageTable::kNoPage;
    if (row(pages) < kBlockN && key < args.band.seqlen_k) {
      next = __ldcg(pages.entries + std::int64_t{batch} * pages.row + (key >> pages.log2_size));
    }
  }
  /// On to the tile of a step.
  __device__ __forceinline__ void take_next(int step) {
    before = current;
    current = next;
    latest = step;
  }
  /// Asks for a tile of K or V. @param step  the latest, or the one before it
  /// @param of_page, of_end  maps, the second of the page in which keys end: behind them, and outside of all
  /// pages, are zeros
  __device__ __forceinline__ void load(const Flash3PagedArguments& args, const CUtensorMap& of_page,
                                       const CUtensorMap& of_end, sm90::SharedAddress target,
                                       sm90::SharedAddress full, int step, int first_key, int head) const {
    static_assert((kBlockN & (kBlockN - 1)) == 0 && kBlockN / kLeastPageSize <= 32);
    constexpr sm90::PanelTile kTile = kShape.k_tile();
    static_assert(kTile == kShape.v_tile());
    const int page = step == latest ? current : before, page_size = 1 << args.pages.log2_size;
    const int in_page = first_key & (page_size - 1);  // of all parts: where there are several, 0
    target += static_cast<std::uint32_t>(row(args.pages) * panel_row_bytes(kTile.swizzle));
    const auto load_boxes = [&](const CUtensorMap& map) {
#pragma unroll
      for (int panel = 0; panel < kTile.panels(); ++panel) {
        sm90::load_box(target + static_cast<std::uint32_t>(panel * kTile.panel_bytes()), map, full,
                       panel * kTile.panel_cols(), in_page, head, page, sm90::CacheHint::evict_last);
      }
    };
    if (lane == 0) sm90::arrive_expecting(full, static_cast<std::uint32_t>(kTile.bytes()));
    __syncwarp();
    if (row(args.pages) < kBlockN) {
      // What is the same for all lanes is not asked of each of them anew.
      if (first_key + kBlockN <= args.band.seqlen_k) {
        load_boxes(of_page);
      } else {
        const int first_of_page = first_key + row(args.pages) - in_page;
        load_boxes(first_of_page + page_size <= args.band.seqlen_k ? of_page : of_end);
      }
    }
    __syncwarp();
  }
};

}  // namespace tilescope::gpu::detail
