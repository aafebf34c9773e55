// SPDX-License-Identifier: Apache-2.0
// What stands between the matrix products of a CUDA-core kernel: mask, softmax, dropout and their gradients,
// on scores in registers.
#pragma once

#include "gpu/kernels/simt_observe.cuh"
#include "gpu/kernels/simt_tile.cuh"

namespace tilescope::simt {

inline constexpr float kLog2E = 1.4426950408889634f;

/// Which entries of the score matrix a thread's DotTile holds: queries down the rows and keys across the
/// columns, or the transpose.
template <int Rows, int Cols, bool RowsAreKeys>
struct ScorePlace {
  static constexpr int kRowsHere = Rows / (kWarps * kLaneRows), kColsHere = Cols / kLaneCols;
  static constexpr int kQueriesHere = RowsAreKeys ? kColsHere : kRowsHere;
  static constexpr int kKeysHere = RowsAreKeys ? kRowsHere : kColsHere;
  static_assert(kQueriesHere * kKeysHere <= 64, "the dropout decisions of a thread fit 64 bits");
  int first_query, first_key;  // of this thread

  __device__ ScorePlace(Lane lane, int first_query, int first_key)
      : first_query(first_query + (RowsAreKeys ? lane.col : lane.first_row<Rows>())),
        first_key(first_key + (RowsAreKeys ? lane.first_row<Rows>() : lane.col)) {}
  __device__ int query_offset(int a) const { return (RowsAreKeys ? kLaneCols : kLaneRows) * a; }
  __device__ int key_offset(int b) const { return (RowsAreKeys ? kLaneRows : kLaneCols) * b; }
  /// Entry (a-th query, b-th key) of this thread.
  __device__ static float& entry(DotTile<Rows, Cols>& tile, int a, int b) {
    return RowsAreKeys ? tile.x[b][a] : tile.x[a][b];
  }
  __device__ static float entry(const DotTile<Rows, Cols>& tile, int a, int b) {
    return RowsAreKeys ? tile.x[b][a] : tile.x[a][b];
  }

  /// Keys that the a-th query sees, as offsets from this thread's first key. Everything for a full tile.
  struct Visible {
    int first, last;
    __device__ bool operator()(int offset) const { return first <= offset && offset <= last; }
  };
  template <bool Masked>
  __device__ Visible visible(const VisibleBand& band, int a) const {
    if constexpr (!Masked) return {0, kUnbounded};
    const int query = first_query + query_offset(a);
    if (query >= band.seqlen_q) return {1, 0};
    const int one_more = planted(GpuBug::simt_mask_one_more) ? 1 : 0;
    return {band.first_key(query) - first_key, band.last_key(query) + one_more - first_key};
  }

  /// Which entries dropout keeps: bit a * kKeysHere + b. All of them without dropout.
  __device__ std::uint64_t kept(const DropoutMask& dropout, int batch_head) const {
    std::uint64_t bits = 0;
    if (!dropout.active()) return ~bits;
    if (planted(GpuBug::simt_dropout_of_first_head)) batch_head = 0;
#pragma unroll 1
    for (int i = 0; i < kQueriesHere * kKeysHere; ++i) {
      const int query = first_query + query_offset(i / kKeysHere),
                key = first_key + key_offset(i % kKeysHere);
      if (dropout.keep(batch_head, query, key)) bits |= std::uint64_t{1} << i;
    }
    return bits;
  }
  /// Zeroes what dropout drops and scales up the rest.
  __device__ static void drop(std::uint64_t kept, float keep_scale, DotTile<Rows, Cols>& tile) {
#pragma unroll
    for (int i = 0; i < kQueriesHere * kKeysHere; ++i) {
      float& x = entry(tile, i / kKeysHere, i % kKeysHere);
      x = kept >> i & 1 ? x * keep_scale : 0.0f;
    }
  }

  /// Sum of this thread's visible entries, for the tile log.
  __device__ double visible_sum(const VisibleBand& band, const DotTile<Rows, Cols>& tile) const {
    double sum = 0.0;
#pragma unroll
    for (int a = 0; a < kQueriesHere; ++a) {
      const Visible sees = visible<true>(band, a);
#pragma unroll
      for (int b = 0; b < kKeysHere; ++b) {
        if (sees(key_offset(b))) sum += entry(tile, a, b);
      }
    }
    return sum;
  }
};

template <int Rows, int Cols>
__device__ inline void multiply_scores(DotTile<Rows, Cols>& scores, float factor) {
#pragma unroll
  for (auto& row : scores.x) {
#pragma unroll
    for (float& score : row) score *= factor;
  }
}

/// Rounds each value to the element type, as a tensor core's operand would be.
template <typename Element, int Rows, int Cols>
__device__ inline void round_tile(DotTile<Rows, Cols>& tile) {
  static_assert(Cols / kLaneCols % 2 == 0, "values are rounded in pairs");
  if (planted(GpuBug::simt_rounding_lost)) return;
#pragma unroll
  for (auto& row : tile.x) {
#pragma unroll
    for (int j = 0; j < Cols / kLaneCols; j += 2) {
      const float2 pair = rounded<Element>(make_float2(row[j], row[j + 1]));
      row[j] = pair.x;
      row[j + 1] = pair.y;
    }
  }
}

template <typename Quads>
__device__ inline double sum_of(const Quads& tile) {
  double sum = 0.0;
#pragma unroll
  for (const auto& row : tile.x) {
#pragma unroll
    for (const float4& quad : row) sum += static_cast<double>(quad.x) + quad.y + quad.z + quad.w;
  }
  return sum;
}

/// Running softmax of the rows that a thread shares with the seven others of its row group.
template <int RowsHere>
struct RowStatistics {
  float max[RowsHere];  // of the unscaled scores
  float sum[RowsHere];  // this thread's columns only; added up over the group once, at the end
};

/// Scores become P (un-normalised); the statistics and the accumulator take the tile in.
/// Source: FlashAttention-2, Algorithm 1, lines 9 and 10.
template <bool Masked, int Rows, int Cols, int Dim>
__device__ inline void softmax_step(const ScorePlace<Rows, Cols, false>& place, const KernelArguments& args,
                                    DotTile<Rows, Cols>& scores,
                                    RowStatistics<ScorePlace<Rows, Cols, false>::kRowsHere>& statistics,
                                    QuadTile<Rows, Dim>& accum) {
  const float scale = args.softmax_scale_log2;
#pragma unroll
  for (int a = 0; a < place.kQueriesHere; ++a) {
    const auto sees = place.template visible<Masked>(args.band, a);
    float tile_max = -kInfinity;
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      if (!Masked || sees(place.key_offset(b))) tile_max = fmaxf(tile_max, scores.x[a][b]);
    }
    const float old_max = statistics.max[a];
    const float new_max = fmaxf(old_max, row_max(tile_max));
    const bool seen = !Masked || new_max > -kInfinity;  // else the row has not met a visible key yet
    const float offset = seen ? new_max * scale : 0.0f;
    float rescale = old_max > -kInfinity ? fast_exp2((old_max - new_max) * scale) : 0.0f;
    if (planted(GpuBug::simt_rescale_lost)) rescale = 1.0f;
    float sum = 0.0f;
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      const bool counts = !Masked || sees(place.key_offset(b));
      const float p = counts ? fast_exp2(fmaf(scores.x[a][b], scale, -offset)) : 0.0f;
      scores.x[a][b] = p;
      sum += p;
    }
    statistics.max[a] = new_max;
    statistics.sum[a] = fmaf(statistics.sum[a], rescale, sum);
#pragma unroll
    for (float4& quad : accum.x[a]) {
      quad = {quad.x * rescale, quad.y * rescale, quad.z * rescale, quad.w * rescale};
    }
  }
}

/// P of a row from its LSE, as FlashAttention-2 keeps it. `value` lies in shared memory, by row of the q
/// tile.
struct ProbsFromLse {
  const float* lse;

  struct Row {
    float offset;
    __device__ float operator()(float score, float scale) const {
      const float exponent = fmaf(score, scale, -offset);
      return fast_exp2(exponent > 0.0f ? 0.0f
                                       : exponent);  // only the rounding of a huge LSE makes it positive
    }
  };
  __device__ Row row(int index, float) const {
    return {lse[planted(GpuBug::simt_lse_stale) ? 0 : index] * kLog2E};
  }
};

/// P of a row from its maximum and sum, as FlashAttention keeps them.
struct ProbsFromMaxAndSum {
  const float *max, *sum;

  struct Row {
    float offset, inverse_sum;
    __device__ float operator()(float score, float scale) const {
      return fast_exp2(fmaf(score, scale, -offset)) * inverse_sum;
    }
  };
  __device__ Row row(int index, float scale) const {
    return {max[index] * scale, sum[index] == 0.0f ? 0.0f : 1.0f / sum[index]};
  }
};

/// Scores become P, dP becomes dS = P * (dP - delta).
/// @param tile_query first query of the q tile; delta and the statistics behind `probability` are indexed
/// from it Source: FlashAttention-2, Algorithm 2, lines 11 and 14; FlashAttention, Algorithm 4, lines 13
/// and 20.
template <bool Masked, typename Probability, int Rows, int Cols, bool RowsAreKeys>
__device__ inline void gradient_step(const ScorePlace<Rows, Cols, RowsAreKeys>& place, int tile_query,
                                     const KernelArguments& args, const Probability& probability,
                                     const float* delta, DotTile<Rows, Cols>& scores,
                                     DotTile<Rows, Cols>& dprobs) {
  const float scale = args.softmax_scale_log2;
#pragma unroll
  for (int a = 0; a < place.kQueriesHere; ++a) {
    const auto sees = place.template visible<Masked>(args.band, a);
    const int index = place.first_query - tile_query + place.query_offset(a);
    const auto row = probability.row(index, scale);
    const float row_delta = delta[planted(GpuBug::simt_delta_of_next_row) ? index ^ 1 : index];
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      float& score = place.entry(scores, a, b);
      float& dprob = place.entry(dprobs, a, b);
      const bool counts = !Masked || sees(place.key_offset(b));
      score = counts ? row(score, scale) : 0.0f;
      dprob = score * (dprob - row_delta);
    }
  }
}

/// P and dS of one tile from its scores and dP, with mask, dropout, rounding to the element type, sign and
/// tile log. `probs` leaves as it enters its product. Without `Extras` there is no dropout, sign or log.
template <bool Extras, typename Element, typename Probability, int Rows, int Cols, bool RowsAreKeys>
__device__ inline void gradient_tile(const ScorePlace<Rows, Cols, RowsAreKeys>& place, int tile_query,
                                     bool full, const KernelArguments& args, int batch_head,
                                     const Probability& probability, const float* delta,
                                     const TileLogEntry& entry, DotTile<Rows, Cols>& probs,
                                     DotTile<Rows, Cols>& dscores) {
  [[maybe_unused]] std::uint64_t kept = 0;
  if constexpr (Extras) {
    multiply_scores(probs, args.score_sign);
    if (args.dropout.active()) {
      kept = place.kept(args.dropout, batch_head);
      place.drop(kept, args.dropout.keep_scale, dscores);
    }
    if (entry.open()) {
      entry.add(&DeviceTileState::scores, place.visible_sum(args.band, probs));
      entry.add(&DeviceTileState::dprobs, place.visible_sum(args.band, dscores));
    }
  }
  if (full) {
    gradient_step<false>(place, tile_query, args, probability, delta, probs, dscores);
  } else {
    gradient_step<true>(place, tile_query, args, probability, delta, probs, dscores);
  }
  if constexpr (Extras) {
    if (args.dropout.active()) place.drop(kept, args.dropout.keep_scale, probs);
  }
  round_tile<Element>(probs);
  round_tile<Element>(dscores);
  if constexpr (Extras) {
    if (entry.open()) {
      entry.add(&DeviceTileState::probs, place.visible_sum(args.band, probs));
      entry.add(&DeviceTileState::dscores, place.visible_sum(args.band, dscores));
    }
  }
}

}  // namespace tilescope::simt
