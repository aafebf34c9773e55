// SPDX-License-Identifier: Apache-2.0
// Kv tiles that flash3's forward pass finds in tables (VisitTables): the loading thread asks for each once,
// one ahead, and tells the warpgroups beside K; these ask for the bits of partial ones.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"

namespace tilescope::gpu::detail {

__device__ __forceinline__ void store_word(sm90::SharedAddress address, int x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ int load_word(sm90::SharedAddress address) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

/// The loading thread's walk over the tiles of an item. Each step takes its tile, and asks for the next one.
struct Flash3TableTiles {
  const VisitedTile* tiles;  // of the item
  int count, parity;
  int2 next;                  // tile, and place of its bits
  int current_step, current;  // of the latest K
  int before;                 // the tile of the step before

  __device__ __forceinline__ TileRange range() const { return {0, count, 0, 0}; }
  /// @param part  of all batch entries, as keys are not split
  __device__ __forceinline__ void look_up(const Flash3ForwardArguments& args, int part,
                                          const WorkItem& work) {
    const int place = part * args.visits.blocks_of_entry + work.block;
    const int2 block = __ldcg(reinterpret_cast<const int2*>(args.visits.blocks + place));
    tiles = args.visits.tiles + block.x;
    count = block.y;
    parity = work.wave_parity;
    if (count > 0) ask(args, 0);
  }
  /// On to the tile of a step, which `slot` is told.
  __device__ __forceinline__ void take_next(const Flash3ForwardArguments& args, int step,
                                            sm90::SharedAddress slot) {
    before = current;
    current = next.x;
    current_step = step;
    store_word(slot, next.x);
    store_word(slot + 4, next.y);
    if (step + 1 < count) ask(args, step + 1);
  }
  /// @param step  the latest, or the one before it
  __device__ __forceinline__ int tile(int step) const { return step == current_step ? current : before; }

 private:
  __device__ __forceinline__ void ask(const Flash3ForwardArguments& args, int step) {
    next = __ldcg(reinterpret_cast<const int2*>(tiles + scan_tile(args.scan, range(), parity, step)));
  }
};

/// A step as a computing thread sees it.
template <bool kTables>
struct Flash3Visit {};
template <>
struct Flash3Visit<true> {
  int tile = 0, place = VisitedTile::kFull;
  SeenBits bits;

  __device__ __forceinline__ bool partial() const { return place != VisitedTile::kFull; }
  /// All lanes of a warp enter. Its first one reads, which gives the buffer back later.
  /// @param first_row  of its warpgroup in the tile
  __device__ __forceinline__ void look(const Flash3ForwardArguments& args, sm90::SharedAddress slot,
                                       int first_row, int thread) {
    int words[2] = {};
    if (thread % 32 == 0) words[0] = load_word(slot), words[1] = load_word(slot + 4);
    tile = __shfl_sync(0xFFFFFFFFu, words[0], 0);
    place = __shfl_sync(0xFFFFFFFFu, words[1], 0);
    constexpr int kWordsOfRow = 4;
    const int row = first_row + sm90::accumulator_entry(thread, 0).row;
    const std::uint32_t* from = args.visits.bits + max(place, 0) + kWordsOfRow * row;
#pragma unroll
    for (int half = 0; half < 2; ++half) bits.rows[half] = seen(from + 8 * kWordsOfRow * half);
  }

 private:
  /// 16 bytes of a partial tile, past L1; of a full one, all bits. Without a branch, which WGMMAs in flight
  /// would have to wait for.
  __device__ __forceinline__ uint4 seen(const std::uint32_t* from) const {
    uint4 x;
    asm volatile(
        "{\n.reg .pred partial;\nsetp.ne.s32 partial, %5, -1;\n"
        "mov.u32 %0, -1;\nmov.u32 %1, -1;\nmov.u32 %2, -1;\nmov.u32 %3, -1;\n"
        "@partial ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
        : "l"(from), "r"(place));
    return x;
  }
};

}  // namespace tilescope::gpu::detail
