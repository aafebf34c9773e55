// SPDX-License-Identifier: Apache-2.0
// What Features::varied has in place of a band: tiles that a CTA finds in tables (VisitTables), of which
// partial ones have a bit an entry; and modifiers of scores. All is chosen at run time, so that one instance
// serves every mask and every modifier.
#pragma once

#include "gpu/kernels/flash2_mma/launch.hpp"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/common/cp_async.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm80/ldmatrix.cuh"
#include "gpu/primitives/sm80/warp_gemm.cuh"

namespace tilescope::sm80 {

/// The walk of a CTA over the tiles of a band.
struct BandWalk {
  TileRange range;
  const KernelArguments& args;
  int wave_parity;

  __device__ __forceinline__ int count() const { return range.count(); }
  __device__ __forceinline__ bool empty() const { return range.empty(); }
  __device__ __forceinline__ int tile(int step) const {
    return scan_tile(args.scan, range, wave_parity, step);
  }
  __device__ __forceinline__ bool full(int, int tile) const { return range.full(tile); }
  __device__ __forceinline__ void load_entry_after(int) const {}
  __device__ __forceinline__ void load_slope(int) const {}
};

/// The visible entries of a tile of a table: by the bits of a partial one, all of a full one.
struct SeenEntries {
  const std::uint32_t* words;  // null: all
  int words_of_row;
  int first_row, first_col;  // of the tile, in the matrix
  bool key_rows;             // rows are keys, columns queries
};
__device__ __forceinline__ bool visible(const SeenEntries& seen, int query, int key) {
  const int row = (seen.key_rows ? key : query) - seen.first_row;
  const int column = (seen.key_rows ? query : key) - seen.first_col;
  return !seen.words || (__ldcg(seen.words + row * seen.words_of_row + column / 32) >> column % 32 & 1);
}

/// What the threads of a CTA share of its walk. Entries come one step ahead of the tiles that they name, by
/// copies of the same group: while step s is computed, the entry of s + 2 may arrive.
struct SharedVisits {
  static constexpr int kEntries = 4;
  VisitedTile entries[kEntries];
  VisitedTiles block;
  float alibi_slopes[2];  // of a head, and of the one after it
  float sink;
};

/// The walk of a CTA over tiles that it finds in tables, for each of its query heads once more. Numbers are
/// asked for by one thread, past L1, so that each comes once.
struct TableWalk {
  const KernelArguments& args;
  SharedVisits& shared;
  int wave_parity, heads;

  /// All threads enter, and meet.
  /// @param begins_with_sinks  whether the pass does
  __device__ TableWalk(const KernelArguments& args, SharedVisits& shared, const CtaWork& work,
                       bool begins_with_sinks)
      : args(args), shared(shared), wave_parity(work.wave_parity), heads(work.end_head - work.first_head) {
    if (threadIdx.x == 0) {
      const int place = work.batch * args.visits.blocks_of_entry + work.first_block;
      const int2 found = __ldcg(reinterpret_cast<const int2*>(args.visits.blocks + place));
      shared.block = {found.x, found.y};
      if (found.y > 0) {
        const int2 entry = __ldcg(reinterpret_cast<const int2*>(entry_of(0)));
        shared.entries[0] = {entry.x, entry.y};
        load_slope(work.first_head);
      }
      if (begins_with_sinks && args.score_mods.sinks) {
        shared.sink = __ldcg(args.score_mods.sinks + work.first_head);
      }
    }
    __syncthreads();
  }
  /// Tiles for each head.
  __device__ __forceinline__ int count() const { return shared.block.count; }
  __device__ __forceinline__ bool empty() const { return count() == 0; }
  /// @param step  counts on from head to head
  __device__ __forceinline__ const VisitedTile& entry(int step) const {
    return shared.entries[step % SharedVisits::kEntries];
  }
  __device__ __forceinline__ int tile(int step) const { return entry(step).tile; }
  __device__ __forceinline__ bool full(int step, int) const { return entry(step).bits == VisitedTile::kFull; }
  /// Starts copying the entry behind a step's, in the group of copies that the caller commits.
  __device__ __forceinline__ void load_entry_after(int step) const {
    if (threadIdx.x == 0 && step + 1 < heads * count()) {
      copy_async_16(shared_address(&shared.entries[(step + 1) % SharedVisits::kEntries]), entry_of(step + 1),
                    true);
    }
  }
  /// Loads the slope of a head that comes next; a barrier must follow before it is read.
  __device__ __forceinline__ void load_slope(int head) const {
    if (threadIdx.x == 0 && args.score_mods.alibi_slopes) {
      shared.alibi_slopes[head % 2] = __ldcg(args.score_mods.alibi_slopes + head);
    }
  }
  __device__ __forceinline__ float slope(int head) const { return shared.alibi_slopes[head % 2]; }
  /// What is visible of a step's tile.
  template <bool kKeyRows, int kCols>
  __device__ __forceinline__ SeenEntries seen(int step, int first_row, int first_col) const {
    const int bits = entry(step).bits;
    return {bits == VisitedTile::kFull ? nullptr : args.visits.bits + bits, kCols / 32, first_row, first_col,
            kKeyRows};
  }

 private:
  __device__ __forceinline__ const VisitedTile* entry_of(int step) const {
    const int tiles = shared.block.count;
    const int position = scan_tile(args.scan, {0, tiles, 0, 0}, wave_parity, step % tiles);
    return args.visits.tiles + shared.block.first + position;
  }
};

/// What tells the CTA's tiles, in an instance that walks tables or one that does not.
/// @param range_of  tells the range of a band; not called where tables are walked
template <Features kFeatures, typename RangeOf>
__device__ __forceinline__ auto walk_of(const KernelArguments& args, const CtaWork& work, RangeOf range_of,
                                        bool begins_with_sinks = false) {
  if constexpr (is_varied(kFeatures)) {
    __shared__ SharedVisits shared;
    return TableWalk(args, shared, work, begins_with_sinks);
  } else {
    return BandWalk{range_of(), args, work.wave_parity};
  }
}

/// The first entry of a block of scores in the matrix.
struct BlockPlace {
  int query, key;
};

/// Makes the invisible scores of a block -inf, by the bits of its tile.
template <bool kKeyRows, int kMBlocks, int kNBlocks>
__device__ __forceinline__ void mask_by_bits(WarpAccumulator<kMBlocks, kNBlocks>& s, const SeenEntries& seen,
                                             BlockPlace first, int lane) {
  constexpr int kWords = max_of(1, kNBlocks / 2);
  const int row = (kKeyRows ? first.key : first.query) - seen.first_row + (lane >> 2);
  const int column = (kKeyRows ? first.query : first.key) - seen.first_col;
  const int shift = column % 32 + 2 * (lane & 3);  // a block of less than a word may begin inside one
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t* from = seen.words + (row + 16 * i + 8 * half) * seen.words_of_row + column / 32;
      std::uint32_t words[kWords];
      if constexpr (kWords == 2) {
        const uint2 both = __ldcg(reinterpret_cast<const uint2*>(from));
        words[0] = both.x, words[1] = both.y;
      } else {
        static_assert(kWords == 1);
        words[0] = __ldcg(from);
      }
#pragma unroll
      for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (!(words[j / 4] >> shift >> (8 * j % 32 + e) & 1)) s.tile[i][j].x[2 * half + e] = kMinusInfinity;
        }
      }
    }
  }
}

/// Calls visit(entry, distance) for each entry of a block, with the keys that it lies behind the diagonal.
/// Queries are rows, or, if kKeyRows, columns.
template <bool kKeyRows, int kMBlocks, int kNBlocks, typename Visit>
__device__ __forceinline__ void for_each_place(WarpAccumulator<kMBlocks, kNBlocks>& s,
                                               const KernelArguments& args, BlockPlace first, int lane,
                                               Visit visit) {
  const int row = lane >> 2, col = 2 * (lane & 3);
  const int behind = first.key - first.query - args.band.offset() + (kKeyRows ? row - col : col - row);
  constexpr int kColStep = kKeyRows ? -1 : 1;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        visit(s.tile[i][j].x[e], behind + kColStep * (8 * j + e % 2 - 16 * i - 8 * (e / 2)));
      }
    }
  }
}

/// What modifiers add to a score for its place, in units of scores (Alibi and LogBias of score_mods.hpp).
__device__ __forceinline__ float bias_of_place(const DeviceScoreMods& mods, float alibi_slope, int behind) {
  const float distance = fabsf(static_cast<float>(behind));
  float bias = 0.0f;
  if (mods.alibi_slopes) bias = -alibi_slope * mods.per_scale * distance;
  if (mods.log_bias > 0.0f) bias = fmaf(-mods.log_bias, __logf(1.0f + distance), bias);
  return bias;
}

/// Products become scores, with the sign of the scale and their modifiers; -inf where a query does not see
/// the key. The order is that of for_each_score_mod (score_mods.hpp).
template <bool kKeyRows, int kMBlocks, int kNBlocks>
__device__ __forceinline__ void modify_and_mask(WarpAccumulator<kMBlocks, kNBlocks>& s,
                                                const KernelArguments& args, float alibi_slope,
                                                const SeenEntries& seen, BlockPlace first, int lane) {
  lane = computed_again(lane);
  const DeviceScoreMods& mods = args.score_mods;
  s.scale(args.score_sign);
  if (mods.softcap > 0.0f) {
    const float inverse = 1.0f / mods.softcap;
    for_each_place<kKeyRows>(s, args, first, lane,
                             [&](float& score, int) { score = mods.softcap * tanhf(score * inverse); });
  }
  if (mods.alibi_slopes || mods.log_bias > 0.0f) {
    for_each_place<kKeyRows>(s, args, first, lane, [&](float& score, int behind) {
      score += bias_of_place(mods, alibi_slope, behind);
    });
  }
  if (seen.words) mask_by_bits<kKeyRows>(s, seen, first, lane);
}

/// What takes a score to its exponent in a backward pass: the sign of the softmax scale stands in it, but
/// where modifiers take scores with their sign.
template <Features kFeatures>
__device__ __forceinline__ float product_scale(const KernelArguments& args) {
  return is_varied(kFeatures) ? exponent_scale(args) : signed_exponent_scale(args);
}

struct NoDerivatives {
  static constexpr bool kMayBe = false;
};
/// f' of the modifiers, from what they made of a score: of a soft cap 1 - tanh^2, where cap * tanh is the
/// score less what was added for its place. The score itself is found in P = 2^(score * scale - lse) again,
/// so that it takes no registers meanwhile; where P has vanished, dS has too.
struct ScoreDerivatives {
  static constexpr bool kMayBe = true;
  const KernelArguments& args;
  float alibi_slope;
  float scale;

  __device__ __forceinline__ bool any() const { return args.score_mods.softcap > 0.0f; }
  /// @param lse  as lse_exponent() gives it
  __device__ __forceinline__ float of(float prob, float lse, int behind) const {
    const float score = (__log2f(prob) + lse) / scale - bias_of_place(args.score_mods, alibi_slope, behind);
    const float tanh = score / args.score_mods.softcap;
    return fmaxf(0.0f, fmaf(-tanh, tanh, 1.0f));
  }
};

}  // namespace tilescope::sm80
