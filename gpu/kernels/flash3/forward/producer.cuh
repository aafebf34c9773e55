// SPDX-License-Identifier: Apache-2.0
// The loading side of flash3's forward pass: one thread that asks the copy engine for tile after tile; of
// keys and values in pages, four warps.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/modifiers.cuh"
#include "gpu/kernels/flash3/forward/pages.cuh"
#include "gpu/kernels/flash3/forward/tables.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// The thread that loads; of pages, the warpgroup, whose lanes ask for boxes and of which the first thread
/// does the rest. What is said of K there is of the warps that load it, and so of V. Order of a tile: K, Q,
/// K, V, K, V ... V, as the consumers ask for them.
/// @tparam Shared  Flash3Shared, or that of the pass on bytes
/// @return its side of V, where the tile that would follow goes
template <auto kShape, typename Shared, typename Arguments>
__device__ __forceinline__ auto produce(const Arguments& args, Shared shared, Flash3Item* items) {
  using sm90::CacheHint;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKTile = kShape.k_tile(), kVTile = kShape.v_tile();
  const auto load_tile = [](std::uint32_t target, const CUtensorMap& map, std::uint32_t full,
                            const sm90::PanelTile& tile, int row, int head, int batch, CacheHint hint) {
    sm90::arrive_expecting(full, static_cast<std::uint32_t>(tile.bytes()));
    for (int panel = 0; panel < tile.panels(); ++panel) {
      sm90::load_box(target + static_cast<std::uint32_t>(panel * tile.panel_bytes()), map, full,
                     panel * tile.panel_cols(), row, head, batch, hint);
    }
  };
  const bool first_lane = !kShape.paged || threadIdx.x == 0;
  [[maybe_unused]] Flash3PageLoadsOf<kShape> pages;
  auto q = shared.q();
  auto k = shared.k();
  auto v = shared.v();
  /// Hands an item, and its rows of Q if it has tiles to compute, to the warpgroups.
  const auto hand_over = [&](const Flash3Item& item, int tiles) {
    if constexpr (kShape.paged) {
      if (pages.warp > 0) return;
    }
    for (int group = 0; group < kShape.row_groups(); ++group) {
      const auto of_group = q.of_ring(group);
      of_group.wait_empty("a free Q buffer");
      if (!first_lane) continue;
      items[of_group.index()] = item;
      if constexpr (kShape.tables) store_word(shared.visit_count(of_group.index()), tiles);
      if constexpr (kShape.mods) {
        copy_head_numbers(shared.head_numbers(kShape.q_buffers()), shared.head_numbers(of_group.index()));
      }
      const int row = item.template first_query<kShape>(args, group);
      if (tiles > 0 && row < args.band.seqlen_q) {
        load_tile(of_group.buffer(), args.q, of_group.full(), kQTile, row,
                  item.head << head_bits<kShape>(args), item.batch(args), CacheHint::evict_first);
      } else {  // of rows beyond the matrix nothing is stored, whatever the buffer holds
        sm90::arrive(of_group.full());
      }
    }
    q.advance();
  };
  // Which item an index means takes divisions: it is found out while the item before is computed.
  volatile Flash3Item& ahead = items[kShape.q_buffers()];
  unsigned flipped = 0;
  [[maybe_unused]] Flash3TableTiles found;  // of the item ahead, and then of the item
  const auto look_ahead = [&](int index) {
    if (!first_lane) return;
    if (index < static_cast<int>(args.grid.size())) {
      const WorkItem work = args.grid.item(index);
      int head = work.head, split = 0;
      if (args.splits.count > 1) {  // those of a tile stand side by side
        split = head % args.splits.count;
        head /= args.splits.count;
      }
      ahead.part = split * args.batches + head / args.heads;
      ahead.head = head % args.heads;
      ahead.block = work.block;
      ahead.place = 4u * static_cast<unsigned>(index) + flipped + static_cast<unsigned>(work.wave_parity);
      flipped ^= 2u;
      if constexpr (kShape.tables) found.look_up(args, ahead.part, work);
    } else {
      ahead.block = -1;
    }
  };
  look_ahead(static_cast<int>(blockIdx.x));
  for (;;) {
    if constexpr (kShape.paged) pages.meet();
    const Flash3Item item{ahead.part, ahead.head, ahead.block, ahead.place};
    if constexpr (kShape.paged) pages.meet();
    if (item.block < 0) break;
    const TileRange range = [&] {
      if constexpr (kShape.tables) return found.range();
      return item.template tiles<kShape>(args);
    }();
    const int batch = item.batch(args), kv_head = item.head / args.group_size;
    const auto first_key = [&](int step) {
      if constexpr (kShape.tables) return found.tile(step) * kShape.tile.block_n;
      return scan_tile(args.scan, range, item.wave_parity(), step) * kShape.tile.block_n;
    };
    /// The next tile of a pipe, from pages. (Their type, being deduced, may be that of no pages.)
    const auto load_paged = [&](auto& loads, auto& pipe, const CUtensorMap& of_page,
                                const CUtensorMap& of_end, int step, const char* what) {
      const int page = loads.next;
      if (step + 1 < range.count()) loads.ask(args, batch, first_key(step + 1));
      pipe.wait_empty(what);
      loads.load(args, of_page, of_end, pipe.buffer(), pipe.full(), page, first_key(step), kv_head);
      pipe.advance();
    };
    const auto load_k = [&](int step) {
      constexpr auto kWhat = "a free K buffer";
      if constexpr (kShape.paged) {
        if (pages.loads_k()) load_paged(pages, k, args.k, args.k_end, step, kWhat);
      } else {
        k.wait_empty(kWhat);
        if constexpr (kShape.tables) found.take_next(args, step, shared.visit(k.stage()));
        load_tile(k.buffer(), args.k, k.full(), kKTile, first_key(step), kv_head, batch,
                  CacheHint::evict_last);
        k.advance();
      }
    };
    const auto load_v = [&](int step) {
      constexpr auto kWhat = "a free V buffer";
      if constexpr (kShape.paged) {
        if (!pages.loads_k()) load_paged(pages, v, args.v, args.v_end, step, kWhat);
      } else {
        v.wait_empty(kWhat);
        load_tile(v.buffer(), args.v, v.full(), kVTile, first_key(step), kv_head, batch,
                  CacheHint::evict_last);
        v.advance();
      }
    };
    if constexpr (kShape.paged) {
      if (!range.empty()) pages.ask(args, batch, first_key(0));
    }
    if (!range.empty()) load_k(0);
    if constexpr (kShape.mods) {
      load_head_numbers(args.mods, item.head, !range.empty(), shared.head_numbers(kShape.q_buffers()));
    }
    hand_over(item, range.count());
    // Who ends first takes the next item: asked near the end, but so early that the answer is there in time.
    constexpr int kTilesBefore = 2;
    const int asks = range.count() - kTilesBefore;
    const auto take = [&] { return first_lane ? atomicAdd(&args.counter->taken, 1) : 0; };
    int taken = asks <= 2 ? take() : 0;
    if (range.count() > 1) load_k(1);
    if (!range.empty()) load_v(0);
    for (int step = 2; step < range.count(); ++step) {
      if (step == asks && asks > 2) taken = take();
      load_k(step);
      load_v(step - 1);
    }
    if (range.count() > 1) load_v(range.count() - 1);
    // Each item asks once: nobody does any more.
    if (first_lane && taken == static_cast<int>(args.grid.size()) - 1) args.counter->taken = 0;
    const int next = static_cast<int>(gridDim.x) + taken;
    look_ahead(next);
  }
  hand_over({0, 0, -1, 0}, 0);
  return v;
}

}  // namespace tilescope::gpu::detail
