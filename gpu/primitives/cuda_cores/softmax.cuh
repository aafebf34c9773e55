// SPDX-License-Identifier: Apache-2.0
// What stands between the matrix products of a CUDA-core kernel: mask, softmax, dropout and their gradients,
// on scores in registers.
#pragma once

#include "gpu/primitives/common/tile_log.cuh"
#include "gpu/primitives/cuda_cores/product.cuh"

namespace tilescope::cuda_cores {

/// Which entries of the score matrix a thread's tile holds: queries down the rows, keys across the columns.
template <typename Tile>
struct ScorePlace {
  static constexpr int kQueriesHere = Tile::kRowsHere, kKeysHere = Tile::kColsHere;
  static_assert(kQueriesHere * kKeysHere <= 64, "the dropout decisions of a thread fit 64 bits");
  int first_query, first_key;  // of this thread

  __device__ ScorePlace(Lane lane, int first_query, int first_key)
      : first_query(first_query + Tile::row(lane, 0)), first_key(first_key + Tile::col(lane, 0)) {}
  __device__ static constexpr int query_offset(int a) { return Tile::row_step(a); }
  __device__ static constexpr int key_offset(int b) { return Tile::col_step(b); }

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
    return {band.first_key(query) - first_key, band.last_key(query) - first_key};
  }

  /// Which entries dropout keeps: bit a * kKeysHere + b. All of them without dropout.
  __device__ std::uint64_t kept(const DropoutMask& dropout, int batch_head) const {
    std::uint64_t bits = 0;
    if (!dropout.active()) return ~bits;
#pragma unroll 1
    for (int i = 0; i < kQueriesHere * kKeysHere; i += 4) {
      const int query = first_query + query_offset(i / kKeysHere),
                key = first_key + key_offset(i % kKeysHere);
      const Philox4 random = dropout.bits(batch_head, query, key / 4);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        if (random.x[x] >= dropout.threshold) bits |= std::uint64_t{1} << (i + x);
      }
    }
    return bits;
  }
  /// Zeroes what dropout drops and scales up the rest.
  __device__ static void drop(std::uint64_t kept, float keep_scale, Tile& tile) {
#pragma unroll
    for (int i = 0; i < kQueriesHere * kKeysHere; ++i) {
      float& x = tile.x[i / kKeysHere][i % kKeysHere];
      x = kept >> i & 1 ? x * keep_scale : 0.0f;
    }
  }

  /// Sum of this thread's visible entries, for the tile log.
  __device__ double visible_sum(const VisibleBand& band, const Tile& tile) const {
    double sum = 0.0;
#pragma unroll
    for (int a = 0; a < kQueriesHere; ++a) {
      const Visible sees = visible<true>(band, a);
#pragma unroll
      for (int b = 0; b < kKeysHere; ++b) {
        if (sees(key_offset(b))) sum += tile.x[a][b];
      }
    }
    return sum;
  }
};

/// Puts the sign of the softmax scale on a tile of products.
template <typename Tile>
__device__ inline void sign_scores(Tile& scores, const KernelArguments& args) {
#pragma unroll
  for (auto& row : scores.x) {
#pragma unroll
    for (float& score : row) score = signed_product(score, args);
  }
}

/// Rounds each value to the element type, as a tensor core's operand would be.
template <typename Element, typename Tile>
__device__ inline void round_tile(Tile& tile) {
#pragma unroll
  for (auto& row : tile.x) {
#pragma unroll
    for (int j = 0; j < Tile::kColsHere; j += 2) {
      const float2 pair = rounded<Element>(make_float2(row[j], row[j + 1]));
      row[j] = pair.x;
      row[j + 1] = pair.y;
    }
  }
}

template <typename Tile>
__device__ inline double sum_of(const Tile& tile) {
  double sum = 0.0;
#pragma unroll
  for (const auto& row : tile.x) {
#pragma unroll
    for (float x : row) sum += static_cast<double>(x);
  }
  return sum;
}

/// P on its way through shared memory to P V. A warp whose part of the sum has the rows of its part of P
/// reads only what it wrote. Kept as its transpose: so P takes fewer registers in the product.
template <typename Scores>
struct SharedProbs;
template <int Rows, int Cols, int WarpRows>
struct SharedProbs<ThreadTile<Rows, Cols, WarpRows, 1>> {
  float* data;

  __device__ void put(Lane lane, const ThreadTile<Rows, Cols, WarpRows, 1>& probs) const {
    put_transposed(lane, SharedTile<Rows>{data}, probs);
  }
  /// sum += P V
  template <typename Sum, int Dim>
  __device__ void multiply(Lane lane, SharedTile<Dim> v, Sum& sum) const {
    multiply_tn<Cols>(lane, SharedTile<Rows>{data}, v, sum);
  }
};

/// Running softmax of the rows that a thread shares with the seven others of its row group.
template <int RowsHere>
struct SoftmaxState {
  float max[RowsHere];  // of the unscaled scores
  float sum[RowsHere];  // this thread's columns only; added up over the group once, at the end
};

/// Scores become P (un-normalised); maxima, sums and the accumulator take the tile in.
/// Source: FlashAttention-2, Algorithm 1, lines 9 and 10.
template <bool Masked, typename Scores, typename Accum>
__device__ inline void softmax_step(const ScorePlace<Scores>& place, const KernelArguments& args,
                                    const VisibleBand& band, Scores& scores,
                                    SoftmaxState<Scores::kRowsHere>& state, Accum& accum) {
  const float scale = args.softmax_scale_log2;
#pragma unroll
  for (int a = 0; a < place.kQueriesHere; ++a) {
    const auto sees = place.template visible<Masked>(band, a);
    float tile_max = kMinusInfinity;
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      if (!Masked || sees(place.key_offset(b))) tile_max = fmaxf(tile_max, scores.x[a][b]);
    }
    const float old_max = state.max[a];
    const float new_max = fmaxf(old_max, row_max(tile_max));
    const float shift = exponent_shift<!Masked>(new_max, scale);
    const float rescale = rescale_factor(old_max, scale, shift);
    float sum = 0.0f;
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      const bool counts = !Masked || sees(place.key_offset(b));
      const float p = counts ? exp2_approx(score_exponent(scores.x[a][b], scale, shift)) : 0.0f;
      scores.x[a][b] = p;
      sum += p;
    }
    state.max[a] = new_max;
    state.sum[a] = fmaf(state.sum[a], rescale, sum);
#pragma unroll
    for (float& x : accum.x[a]) x *= rescale;
  }
}

/// P of a row from its LSE, as FlashAttention-2 keeps it. `value` lies in shared memory, by row of the q
/// tile.
struct ProbsFromLse {
  const float* lse;

  struct Row {
    float shift;
    __device__ float operator()(float product, float scale) const {
      const float exponent = score_exponent(product, scale, shift);
      return exp2_approx(exponent > 0.0f ? 0.0f : exponent);  // only the rounding of a huge LSE makes it so
    }
  };
  __device__ Row row(int index, float) const { return {-lse[index] * kLog2E}; }
};

/// P of a row from its maximum and sum, as FlashAttention keeps them.
struct ProbsFromMaxAndSum {
  const float *max, *sum;

  struct Row {
    float shift, normaliser;
    __device__ float operator()(float product, float scale) const {
      return exp2_approx(score_exponent(product, scale, shift)) * normaliser;
    }
  };
  __device__ Row row(int index, float scale) const {
    return {exponent_shift<true>(max[index], scale), inverse_sum(sum[index])};
  }
};

/// Scores become P, normalised. `probability` is indexed from `tile_query`, the q tile's first query.
/// Source: FlashAttention-2, Algorithm 2, line 11; FlashAttention, Algorithm 4, line 13.
template <bool Masked, typename Probability, typename Tile>
__device__ inline void probability_step(const ScorePlace<Tile>& place, int tile_query,
                                        const KernelArguments& args, const VisibleBand& band,
                                        const Probability& probability, Tile& scores) {
  const float scale = args.softmax_scale_log2;
#pragma unroll
  for (int a = 0; a < place.kQueriesHere; ++a) {
    const auto sees = place.template visible<Masked>(band, a);
    const auto row = probability.row(place.first_query - tile_query + place.query_offset(a), scale);
#pragma unroll
    for (int b = 0; b < place.kKeysHere; ++b) {
      float& score = scores.x[a][b];
      score = !Masked || sees(place.key_offset(b)) ? row(score, scale) : 0.0f;
    }
  }
}

}  // namespace tilescope::cuda_cores
