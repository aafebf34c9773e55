// SPDX-License-Identifier: Apache-2.0
// The mask on a warpgroup's scores, by the places of accumulator_entry(): queries as rows, and transposed.
#pragma once

#include <cstdint>

#include "cpu_ref/primitives/score_constants.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::sm90 {

/// A thread's columns [first, last] of a row of an accumulator as bits, one an element: its elements are
/// pairs of neighbours, eight columns apart. One comparison an element would take twice the instructions.
/// @param first, last  from the thread's own first column on; may lie outside
template <int kElements>
struct OwnColumns {
  static constexpr int kWords = (kElements + 31) / 32;
  std::uint32_t words[kWords];

  __device__ __forceinline__ OwnColumns(int first, int last) {
    const int begin = elements_before(first), end = elements_before(last + 1);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      words[word] = bits_below(end - 32 * word) & ~bits_below(begin - 32 * word);
    }
  }
  __device__ __forceinline__ bool has(int element) const { return words[element / 32] >> (element % 32) & 1; }

 private:
  static __device__ __forceinline__ int elements_before(int column) {
    const int inside = min(max(column, 0), 4 * kElements);
    return inside / 8 * 2 + min(inside % 8, 2);
  }
  static __device__ __forceinline__ std::uint32_t bits_below(int count) {
    return static_cast<std::uint32_t>((1ull << min(max(count, 0), 32)) - 1);
  }
};

/// Gives the scores the scale's sign and makes the invisible ones -inf. Rare: most tiles are full.
/// Rows beyond the matrix are 0 and stay so: nobody stores what becomes of them.
/// @param first_row, first_key  of the warpgroup's 64 rows
/// @param query_of  (int row): the query of the band that a row belongs to
template <int kScores, typename QueryOf>
__device__ __forceinline__ void mask_scores(float (&scores)[kScores], float sign, const VisibleBand& band,
                                            int first_row, int first_key, int thread, QueryOf&& query_of) {
  if (sign != 1.0f) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] *= sign;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Entry entry = accumulator_entry(thread, 2 * half);
    const int query = query_of(first_row + entry.row);
    const int origin = first_key + entry.col;
    const OwnColumns<kScores / 2> visible(band.first_key(query) - origin, band.last_key(query) - origin);
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      float& score = scores[i / 2 * 4 + 2 * half + i % 2];
      score = visible.has(i) ? score : kMinusInfinity;
    }
  }
}
template <int kScores>
__device__ __forceinline__ void mask_scores(float (&scores)[kScores], float sign, const VisibleBand& band,
                                            int first_query, int first_key, int thread) {
  mask_scores(scores, sign, band, first_query, first_key, thread, [](int row) { return row; });
}

/// Whether register `index` of a transposed tile stands for a score that is visible: rows are keys.
__device__ __forceinline__ bool visible_transposed(const VisibleBand& band, int first_key, int first_query,
                                                   int thread, int index) {
  const Entry entry = accumulator_entry(thread, index);
  const int key = first_key + entry.row, query = first_query + entry.col;
  return query < band.seqlen_q && key < band.seqlen_k && band.visible(query, key);
}

/// Makes the invisible entries of a transposed tile `masked`.
template <int kScores>
__device__ __forceinline__ void mask_transposed(float (&scores)[kScores], float masked,
                                                const VisibleBand& band, int first_key, int first_query,
                                                int thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Entry entry = accumulator_entry(thread, 2 * half);
    const int key = first_key + entry.row, origin = first_query + entry.col;
    const int last = key < band.seqlen_k ? band.last_query(key) : -1;
    const OwnColumns<kScores / 2> visible(band.first_query(key) - origin, last - origin);
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      if (!visible.has(i)) scores[i / 2 * 4 + 2 * half + i % 2] = masked;
    }
  }
}

}  // namespace tilescope::gpu::sm90
