// SPDX-License-Identifier: Apache-2.0
// The mask on a warpgroup's scores, by the places of accumulator_entry(): queries as rows, and transposed.
#pragma once

#include "cpu_ref/primitives/score_constants.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::sm90 {

/// Gives the scores the scale's sign and makes the invisible ones `masked`. Rare: most tiles are full.
/// Rows beyond the matrix are 0 and stay so: nobody stores what becomes of them.
/// @param first_query, first_key  of the warpgroup's 64 rows; query_bits  of a row's number, which say which
/// of the queries it is: rows of several heads are the same ones
template <int kScores>
__device__ __forceinline__ void mask_scores(float (&scores)[kScores], float sign, const VisibleBand& band,
                                            int first_query, int first_key, int thread,
                                            float masked = kMinusInfinity, int query_bits = -1) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Entry entry = accumulator_entry(thread, 2 * half);
    const int query = first_query + (entry.row & query_bits);
    const int first = band.first_key(query) - first_key - entry.col;
    const int last = band.last_key(query) - first_key - entry.col;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[i + 2 * half + e];
        const int key = 2 * i + e;  // a thread's pairs are eight columns apart, four registers
        score = key < first || key > last ? masked : sign * score;
      }
    }
  }
}

/// Whether register `index` of a tile stands for a score that is visible.
__device__ __forceinline__ bool visible_entry(const VisibleBand& band, int first_key, int first_query,
                                              int thread, int index) {
  const Entry entry = accumulator_entry(thread, index);
  const int query = first_query + entry.row, key = first_key + entry.col;
  return query < band.seqlen_q && key < band.seqlen_k && band.visible(query, key);
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
    const int key = first_key + entry.row;
    const int first = band.first_query(key) - first_query - entry.col;
    const int last = (key < band.seqlen_k ? band.last_query(key) : -1) - first_query - entry.col;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int query = 2 * i + e;
        if (query < first || query > last) scores[i + 2 * half + e] = masked;
      }
    }
  }
}

}  // namespace tilescope::gpu::sm90
