// SPDX-License-Identifier: Apache-2.0
// What gpu:flash3 asks about scores, each asked here alone, by all of its passes:
//
//   the band    seen_band(): which keys a query of a batch entry sees
//   the tiles   Flash3Item::tiles(), kv_tiles_of_warpgroup(), q_tiles_seen(), kv_tiles_before(): which tiles
//               that means; of these, TileRange::full() says which need no mask
//   the mask    mask_rows(), mask_columns(): scores in registers, queries as rows or as columns
//   tables      Flash3TableTiles, Flash3Visit (forward/tables.cuh) and mask_rows_by_bits(): the tiles and the
//               mask where it is no band. Another mask is another table, which its file of
//               cpu_ref/schedule/masks/ gives
//   the score   score_exponent() (primitives/common/score.cuh): what P's exponent is. Modifiers (soft cap,
//               ALiBi) change scores before: modify_scores() of forward/modifiers.cuh; a learned sink is what
//               rows begin with, begin_with_sink() of forward/softmax.cuh
#pragma once

#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mask.cuh"

namespace tilescope::gpu {

/// The keys that queries of a batch entry see. Where heads are packed its rows are those of all of a group.
/// @param args  of either pass
template <typename Arguments>
__device__ __forceinline__ const VisibleBand& seen_band(const Arguments& args) {
  return args.band;
}
/// Interleaved heads are 1 << head_bits(): 64 rows are as many fewer queries, of each of these.
template <auto kShape, typename Arguments>
__device__ __forceinline__ int head_bits(const Arguments& args) {
  if constexpr (kShape.interleaves()) {
    return args.head_bits;
  } else {
    return 0;
  }
}

/// The kv tiles that a warpgroup's 64 rows see; those of a q tile: Flash3Item::tiles().
template <auto kShape, typename Arguments>
__device__ __forceinline__ TileRange kv_tiles_of_warpgroup(const Arguments& args, int first_query) {
  const int queries = sm90::kWarpgroupRows >> head_bits<kShape>(args);
  const int last = min(args.band.seqlen_q, first_query + queries) - 1;
  return tilescope::detail::kv_tiles_of_rows(seen_band(args), kShape.tile, first_query, last, true);
}
/// The q tiles that see keys of a kv tile.
template <auto kShape, typename Arguments>
__device__ __forceinline__ TileRange q_tiles_seen(const Arguments& args, int n_block) {
  return q_tiles(seen_band(args), kShape.tile, n_block);
}
/// The kv tiles that are issued in front of one, of those that a q tile sees.
template <auto kShape, typename Arguments>
__device__ __forceinline__ int kv_tiles_before(const Arguments& args, int n_block, int m_block) {
  const TileRange seen = kv_tiles(seen_band(args), kShape.tile, m_block);
  if (kShape.ordered && args.grid.descends()) return seen.end - 1 - n_block;
  return n_block - seen.begin;
}

/// Forward: gives a warpgroup's scores the scale's sign, and what its 64 queries do not see becomes -inf.
template <auto kShape, int kScores, typename Arguments>
__device__ __forceinline__ void mask_rows(float (&scores)[kScores], float score_sign, const Arguments& args,
                                          int first_query, int first_key, int thread) {
  const int queries = sm90::kWarpgroupRows >> head_bits<kShape>(args);
  sm90::mask_scores(scores, score_sign, seen_band(args), first_query, first_key, thread, kMinusInfinity,
                    kShape.interleaves() ? queries - 1 : -1);
}

/// What a thread's two rows see of a partial tile of 128 keys, a bit each.
struct SeenBits {
  uint4 rows[2];
};
/// Forward, where the mask is a table's: the same by bits.
template <int kScores>
__device__ __forceinline__ void mask_rows_by_bits(float (&scores)[kScores], float score_sign,
                                                  const SeenBits& seen, int thread) {
  static_assert(kScores == 64);
  const int shift = sm90::accumulator_entry(computed_again(thread), 0).col;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4& row = seen.rows[half];
    const std::uint32_t words[4] = {row.x >> shift, row.y >> shift, row.z >> shift, row.w >> shift};
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = sm90::accumulator_entry(0, i + e).col;  // behind the thread's first
        scores[i + e] = words[key / 32] >> key % 32 & 1 ? score_sign * scores[i + e] : kMinusInfinity;
      }
    }
  }
}

/// Backward, whose exponent's scale has the sign: what makes an exponent of -inf.
template <typename Arguments>
__device__ __forceinline__ float masked_score(const Arguments& args) {
  return args.exponent_scale < 0.0f ? -kMinusInfinity : kMinusInfinity;
}
/// Backward, queries as rows: what they do not see becomes masked_score().
template <int kScores, typename Arguments>
__device__ __forceinline__ void mask_rows_backward(float (&scores)[kScores], const Arguments& args,
                                                   int first_query, int first_key, int thread) {
  sm90::mask_scores(scores, 1.0f, seen_band(args), first_query, first_key, computed_again(thread),
                    masked_score(args));
}
/// Backward, keys as rows and queries as columns: the same. If only keys beyond seqlen_k are to be masked,
/// one comparison a row suffices: a third of the instructions. It needs registers that tiles of 128 queries
/// do not have. `masked` is masked_score().
template <auto kShape, int kScores, typename Arguments>
__device__ __forceinline__ void mask_columns(float (&scores)[kScores], float masked, const Arguments& args,
                                             int first_key, int first_query, int thread) {
  constexpr int kBlockM = kShape.tile.block_m;
  const VisibleBand& band = seen_band(args);
  bool only_padding = false;
  if constexpr (kBlockM < 128) {
    const int last_key = min(band.seqlen_k, first_key + 64) - 1;
    const int last_query = min(band.seqlen_q, first_query + kBlockM) - 1;
    only_padding = band.first_query(last_key) <= first_query && band.last_query(first_key) >= last_query;
  }
  if (!only_padding) {
    sm90::mask_transposed(scores, masked, band, first_key, first_query, computed_again(thread));
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first_key + sm90::accumulator_entry(computed_again(thread), 2 * half).row;
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4) {
      scores[i] = key < band.seqlen_k ? scores[i] : masked;
      scores[i + 1] = key < band.seqlen_k ? scores[i + 1] : masked;
    }
  }
}

}  // namespace tilescope::gpu
