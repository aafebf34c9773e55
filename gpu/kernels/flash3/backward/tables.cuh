// SPDX-License-Identifier: Apache-2.0
// Q tiles that flash3's backward pass finds in tables (VisitTables): the loading thread asks for each once,
// one ahead, and tells all others through a ring; the bits of a partial one come with Q by the copy engine.
#pragma once

#include "gpu/kernels/flash3/backward/walk.cuh"
#include "gpu/primitives/sm90/observe.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// The loading thread's walk over the tiles of a CTA.
template <Flash3BackwardShape kShape>
struct Flash3AskedTiles {
  const Flash3BackwardTableArguments& args;
  Flash3BackwardShared<kShape> shared;
  const Flash3Stream<kShape>& stream;
  const VisitedTile* tiles;  // of the kv tile
  int2 next;                 // tile, and place of its bits
  int step = 0, head = 0;    // of the tile that is asked for
  decltype(shared.visits()) visits = shared.visits();

  __device__ __forceinline__ Flash3AskedTiles(const Flash3BackwardTableArguments& args,
                                              Flash3BackwardShared<kShape> shared,
                                              Flash3Stream<kShape>& stream)
      : args(args), shared(shared), stream(stream) {
    const int place = stream.batch * args.visits.blocks_of_entry + stream.n_block;
    const int2 block = __ldcg(reinterpret_cast<const int2*>(args.visits.blocks + place));
    tiles = args.visits.tiles + block.x;
    const SplitKeys parts{args.grid.num_splits / args.heads.splits};
    stream.range = parts.part_of(TileRange{0, block.y, 0, 0}, stream.sharer / args.heads.splits);
    store_word(shared.visit_count() + 8, stream.range.count());
    sm90::arrive(shared.visit_count());
    if (!stream.range.empty()) ask();
  }
  /// Tells the others of the tile that was asked for, asks for the one after it, and returns the first.
  __device__ __forceinline__ VisitedTile take_next() {
    const VisitedTile tile{next.x, next.y};
    visits.wait_empty("a free place for a tile");
    store_word(visits.buffer(), tile.tile);
    store_word(visits.buffer() + 4, tile.bits);
    sm90::arrive(visits.full());
    visits.advance();
    if (++step == stream.range.count()) {
      step = 0;
      if (++head == args.heads_of_cta) return tile;
    }
    ask();
    return tile;
  }
  /// Bits that come with Q. [bytes]
  static __device__ __forceinline__ int bit_bytes(const VisitedTile& tile) {
    return tile.bits == VisitedTile::kFull ? 0 : kShape.bit_bytes();
  }
  __device__ __forceinline__ void load_bits(const VisitedTile& tile, int stage,
                                            sm90::SharedAddress full) const {
    if (tile.bits == VisitedTile::kFull) return;
    sm90::load_run(shared.bits(stage), args.visits.bits + tile.bits, kShape.bit_bytes(), full);
  }

 private:
  __device__ __forceinline__ void ask() {
    next = __ldcg(
        reinterpret_cast<const int2*>(tiles + scan_tile(args.scan, stream.range, stream.wave_parity, step)));
  }
};

/// @param stream  whose range is found out; without tables nothing is
template <Flash3BackwardShape kShape>
__device__ __forceinline__ auto asked_tiles(const Flash3BackwardArgumentsOf<kShape.tables>& args,
                                            Flash3BackwardShared<kShape> shared,
                                            Flash3Stream<kShape>& stream) {
  if constexpr (kShape.tables) {
    return Flash3AskedTiles<kShape>(args, shared, stream);
  } else {
    return 0;
  }
}

/// A thread that neither loads nor computes: the tile that it is told of next.
template <typename Visits>
__device__ __forceinline__ int told_tile(Visits& visits) {
  visits.wait_full("a tile");
  const int tile = load_word(visits.buffer());
  visits.release();
  return tile;
}

/// What a computing thread knows of a step's tile.
template <Flash3BackwardShape kShape>
struct Flash3QVisit {
  static constexpr int kWords = kShape.tile.block_m / 32, kScores = kShape.tile.block_m / 2;
  int tile, place;
  sm90::SharedAddress bits;  // of a partial tile, from the warpgroup's first key on

  Flash3QVisit() = default;
  /// All lanes of a warp enter, to whom Q has come; they give both places back with Q.
  /// @param first_key  of the warpgroup in the tile
  __device__ __forceinline__ Flash3QVisit(sm90::SharedAddress slot, sm90::SharedAddress tile_bits,
                                          int first_key)
      : tile(__shfl_sync(0xFFFFFFFFu, load_word(slot), 0)),
        place(__shfl_sync(0xFFFFFFFFu, load_word(slot + 4), 0)),
        bits(tile_bits + 4 * kWords * first_key) {}
  __device__ __forceinline__ bool partial() const { return place != VisitedTile::kFull; }
  /// Calls visit(register, whether its key is seen by its query) for all of a partial tile.
  template <typename Visit>
  __device__ __forceinline__ void each_score(int thread, Visit&& visit) const {
    const sm90::Entry first = sm90::accumulator_entry(computed_again(thread), 0);
    const sm90::SharedAddress of_key = bits + 4 * kWords * first.row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t words[kWords];
      load_words(words, of_key + 8 * 4 * kWords * half);
#pragma unroll
      for (std::uint32_t& word : words) word >>= first.col;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int query = sm90::accumulator_entry(0, i + e).col;  // behind the thread's first
          visit(i + e, words[query / 32] >> query % 32 & 1);
        }
      }
    }
  }
  /// What is not seen becomes `masked`.
  __device__ __forceinline__ void mask(float (&scores)[kScores], float masked, int thread) const {
    if (!partial()) return;
    each_score(thread, [&](int i, bool sees) { scores[i] = sees ? scores[i] : masked; });
  }
  __device__ __forceinline__ void log_seen(const TileLogEntry& entry, sm90::TileField field,
                                           const float (&values)[kScores], float factor, int thread) const {
    double sum = 0.0;
    const auto add = [&](int i, bool sees) {
      if (sees) sum += static_cast<double>(factor * values[i]);
    };
    if (partial()) {
      each_score(thread, add);
    } else {
      for (int i = 0; i < kScores; ++i) add(i, true);
    }
    entry.add(field, sum);
  }

 private:
  static __device__ __forceinline__ void load_words(std::uint32_t (&x)[4], sm90::SharedAddress from) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from)
                 : "memory");
  }
  static __device__ __forceinline__ void load_words(std::uint32_t (&x)[2], sm90::SharedAddress from) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(from) : "memory");
  }
};

}  // namespace tilescope::gpu::detail
