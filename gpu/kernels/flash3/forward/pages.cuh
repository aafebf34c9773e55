// SPDX-License-Identifier: Apache-2.0
// Keys and values of flash3's forward pass that lie in pages (cpu_ref/schedule/kv_pages.hpp). The loading
// warpgroup's four warps ask for them, two for K and two for V, each for half of a tile's keys; each lane
// asks for what the half has in one page, of which it asks the table a tile ahead. Pages of 16 keys are 32
// boxes a step of 128 keys at head_dim 128: a warp's lanes take turns, some 48 cycles a box, and a thread
// alone takes some forty instructions a box, which wait for each other. Whoever computes sees the tile that
// it sees without pages.
#pragma once

#include <type_traits>

#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// A loading lane's walk over the tiles of an item.
template <auto kShape>
struct Flash3PageLoads {
  static constexpr int kBlockN = kShape.tile.block_n, kKeys = kShape.keys_a_loader();
  static constexpr int kAllLoading = 15;  // of the named barriers
  int warp, lane;
  int next = 0;  // page of the next tile

  /// From one lane to all, so that the compiler knows that a warp agrees.
  __device__ __forceinline__ Flash3PageLoads()
      : warp(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  static __device__ __forceinline__ void meet() { sm90::sync_named(kAllLoading, sm90::kWarpgroupThreads); }
  __device__ __forceinline__ bool loads_k() const { return warp < kFlash3PageLoaders; }

  /// The warp's first key of a tile, and the lane's. Tiles and pages begin at multiples of a lane's part.
  __device__ __forceinline__ int first_row() const { return warp % kFlash3PageLoaders * kKeys; }
  __device__ __forceinline__ int row(const DeviceKvPages& pages) const {
    return first_row() + lane * min(kKeys, 1 << pages.log2_size);
  }
  __device__ __forceinline__ bool has_part(const DeviceKvPages& pages) const {
    return row(pages) < first_row() + kKeys;
  }
  /// Asks for the lane's page of a tile. Behind the keys, and for lanes without a part, there is none.
  __device__ __forceinline__ void ask(const Flash3PagedArguments& args, int batch, int first_key) {
    const DeviceKvPages& pages = args.pages;
    const int key = first_key + row(pages);
    next = KvPageTable::kNoPage;
    if (has_part(pages) && key < args.band.seqlen_k) {
      next = __ldcg(pages.entries + std::int64_t{batch} * pages.row + (key >> pages.log2_size));
    }
  }
  /// Asks for the warp's half of a tile of K or V.
  /// @param page  of the lane
  /// @param of_page, of_end  maps, the second of the page in which keys end: behind them, and outside of all
  /// pages, are zeros
  __device__ __forceinline__ void load(const Flash3PagedArguments& args, const CUtensorMap& of_page,
                                       const CUtensorMap& of_end, sm90::SharedAddress target,
                                       sm90::SharedAddress full, int page, int first_key, int head) const {
    static_assert((kBlockN & (kBlockN - 1)) == 0 && kKeys / kLeastPageSize <= 32);
    constexpr sm90::PanelTile kTile = kShape.k_tile();
    static_assert(kTile == kShape.v_tile());
    const int page_size = 1 << args.pages.log2_size;
    // Of all of a warp's parts: where there are several, 0.
    const int in_page = (first_key + first_row()) & (page_size - 1);
    target += static_cast<std::uint32_t>(row(args.pages) * panel_row_bytes(kTile.swizzle));
    const auto load_boxes = [&](const CUtensorMap& map) {
#pragma unroll
      for (int panel = 0; panel < kTile.panels(); ++panel) {
        sm90::load_box(target + static_cast<std::uint32_t>(panel * kTile.panel_bytes()), map, full,
                       panel * kTile.panel_cols(), in_page, head, page, sm90::CacheHint::evict_last);
      }
    };
    if (lane == 0)
      sm90::arrive_expecting(full, static_cast<std::uint32_t>(kTile.bytes() / kFlash3PageLoaders));
    __syncwarp();
    if (has_part(args.pages)) {
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
struct Flash3NoPageLoads {};
template <auto kShape>
using Flash3PageLoadsOf = std::conditional_t<kShape.paged, Flash3PageLoads<kShape>, Flash3NoPageLoads>;

}  // namespace tilescope::gpu::detail
