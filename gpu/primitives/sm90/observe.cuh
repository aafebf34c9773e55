// SPDX-License-Identifier: Apache-2.0
// How observed instances log their tiles: a warpgroup's thread adds what it holds of one, in the
// places of accumulator_entry(). `rows_inside` counts the matrix's rows from the warpgroup's first.
#pragma once

#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/common/tile_log.cuh"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mask.cuh"
#include "gpu/primitives/sm90/pack_bytes.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"

namespace tilescope::gpu::sm90 {

using TileField = double DeviceTileState::*;

/// Adds the entries of rows that exist, but those that a mask made -inf.
template <int kCount>
__device__ __forceinline__ void log_masked(const TileLogEntry& entry, TileField field,
                                           const float (&values)[kCount], int rows_inside, int thread) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool inside = accumulator_entry(thread, i).row < rows_inside;
    if (inside && values[i] != kMinusInfinity) sum += static_cast<double>(values[i]);
  }
  entry.add(field, sum);
}

/// The same of rounded pairs.
template <WgmmaType kType, int kCount>
__device__ __forceinline__ void log_pairs(const TileLogEntry& entry, TileField field,
                                          const std::uint32_t (&pairs)[kCount], int rows_inside, int thread) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 pair = unpack_pair<kType>(pairs[i]);
    const bool inside = accumulator_entry(thread, 2 * i).row < rows_inside;
    if (inside) sum += static_cast<double>(pair.x) + static_cast<double>(pair.y);
  }
  entry.add(field, sum);
}

/// The same of rounded bytes, in the order of left_byte_entry().
template <WgmmaType kType, int kCount>
__device__ __forceinline__ void log_bytes(const TileLogEntry& entry, TileField field,
                                          const std::uint32_t (&bytes)[kCount], int rows_inside, int thread) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (left_byte_entry(thread, i % 4, 0).row >= rows_inside) continue;
    const float4 values = unpack_bytes<kType>(bytes[i]);
    sum += static_cast<double>(values.x) + static_cast<double>(values.y) + static_cast<double>(values.z) +
           static_cast<double>(values.w);
  }
  entry.add(field, sum);
}

/// Adds the maxima and sums of the thread's two rows: of a maximum, which the quad has in common, one lane.
__device__ __forceinline__ void log_rows(const TileLogEntry& entry, const float (&max)[2],
                                         const float (&sum)[2], int rows_inside, int thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = accumulator_entry(thread, 2 * half).row < rows_inside;
    if (!inside || max[half] == kMinusInfinity) continue;
    if (thread % 4 == 0) entry.add(&DeviceTileState::row_max, static_cast<double>(max[half]));
    entry.add(&DeviceTileState::row_sum, static_cast<double>(sum[half]));
  }
}

/// Notes what P of the thread's two rows is relative to. @param first_row  the warpgroup's first of the tile
__device__ __forceinline__ void log_maxima(const TileLogEntry& entry, const DeviceTileLog& log,
                                           const float (&max)[2], int first_row, int rows_inside,
                                           int thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = accumulator_entry(thread, 2 * half).row;
    if (thread % 4 == 0 && row < rows_inside) entry.note_maximum(log, first_row + row, max[half]);
  }
}

/// Adds the rows of a warpgroup that leaves a tile out, since none of them sees a key of it.
__device__ __forceinline__ void log_left_out(const TileLogEntry& entry, int rows_inside, int thread) {
  if (thread == 0 && rows_inside > 0) {
    entry.add(&DeviceTileState::left_out, rows_inside < kWarpgroupRows ? rows_inside : kWarpgroupRows);
  }
}

/// Adds the visible entries of a tile, times `factor`, to the tile log.
/// @tparam kTransposed  its rows are keys
template <bool kTransposed = true, int kScores>
__device__ __forceinline__ void log_visible(const TileLogEntry& entry, TileField field,
                                            const float (&values)[kScores], float factor,
                                            const VisibleBand& band, int first_key, int first_query,
                                            int thread) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (kTransposed ? visible_transposed(band, first_key, first_query, thread, i)
                    : visible_entry(band, first_key, first_query, thread, i)) {
      sum += static_cast<double>(factor * values[i]);
    }
  }
  entry.add(field, sum);
}

}  // namespace tilescope::gpu::sm90
