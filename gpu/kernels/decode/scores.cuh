// SPDX-License-Identifier: Apache-2.0
// What of a warp's products with 16 rows of a q tile is seen: scores, masked, and their part of the tile log.
#pragma once

#include "gpu/kernels/decode/rows.cuh"
#include "gpu/kernels/flash2_mma/common.cuh"

namespace tilescope::sm80 {

/// The keys that the queries of a lane's rows see, rows lane / 4 + 8 half; none, where there is no row.
struct SeenKeys {
  int first[2], last[2];

  __device__ SeenKeys(const VisibleBand& band, const DecodeRows& rows, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 8 * half + (lane >> 2), query = rows.query(row);
      first[half] = band.first_key(query);
      last[half] = rows.has(row) ? band.last_key(query) : -1;
    }
  }
};

/// Products become scores: with the sign of the scale, -inf where a query does not see the key.
template <int kKeyBlocks>
__device__ __forceinline__ void mask_rows(WarpAccumulator<1, kKeyBlocks>& s, const KernelArguments& args,
                                          const SeenKeys& seen, bool full, int first_key, int lane) {
  if (full && !(args.score_sign < 0.0f)) return;
  s.scale(args.score_sign);
  const int lane_key = first_key + 2 * (lane & 3);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    mask_half_row(s.tile[0], half, seen.first[half] - lane_key, seen.last[half] - lane_key, kMinusInfinity);
  }
}

/// Adds the scores of a warp's keys to the tile log.
template <int kKeyBlocks>
__device__ __forceinline__ void log_warp_scores(const TileLogEntry& entry, const KernelArguments& args,
                                                const VisibleBand& band, const DecodeRows& rows,
                                                const WarpAccumulator<1, kKeyBlocks>& s, int first_key,
                                                int lane) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < 8 * kKeyBlocks; ++i) {
    const int row = 8 * (i % 4 / 2) + (lane >> 2), key = first_key + 8 * (i / 4) + 2 * (lane & 3) + i % 2;
    if (!rows.has(row) || !visible(band, rows.query(row), key)) continue;
    sum += static_cast<double>(signed_product(s.tile[0][i / 4].x[i % 4], args));
  }
  entry.add(&DeviceTileState::scores, sum);
}

}  // namespace tilescope::sm80
