// SPDX-License-Identifier: Apache-2.0
// What the tensor-core passes share: from arguments to tiles, masks, and stages by architecture.
#pragma once

#include "gpu/kernels/flash2_mma/launch.hpp"
#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/kernels/flash2_mma/varied.cuh"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/common/tile_log.cuh"
#include "gpu/primitives/sm80/fragment_dropout.cuh"
#include "gpu/primitives/sm80/softmax_math.cuh"
#include "gpu/primitives/sm80/tile_copy.cuh"
#include "gpu/primitives/sm80/warp_gemm.cuh"

namespace tilescope::sm80 {

#if defined(__CUDA_ARCH__)
inline constexpr int kComputeCapabilityMajor = __CUDA_ARCH__ / 100;
#else
inline constexpr int kComputeCapabilityMajor = 9;
#endif

constexpr RowAccess row_access(Features f) { return is_general(f) ? RowAccess::either : RowAccess::chunks; }

/// One head of a 16-bit tensor of `length` rows.
__device__ __forceinline__ GlobalRows head_rows(const KernelArguments& args, TensorName name, int batch,
                                                int head, int length) {
  const DeviceTensor& tensor = args[name];
  return {tensor.head<std::uint16_t>(batch, head), tensor.row_stride, length, args.head_dim};
}

/// The same of V, O or one of their gradients.
template <typename Arguments>
__device__ __forceinline__ GlobalRows value_rows(const Arguments& args, TensorName name, int batch, int head,
                                                 int length) {
  GlobalRows rows = head_rows(args, name, batch, head, length);
  rows.cols = value_columns(args);
  return rows;
}

/// The rows of a head that a CTA streams: all, or where tiles are cut, those in slices that it sees something
/// of.
template <Features kFeatures>
__device__ __forceinline__ auto streamed_rows(const GlobalRows& rows, const Interval& seen) {
  if constexpr (cuts_tiles(kFeatures)) {
    return GlobalRowsFrom{{rows.row0, rows.row_stride, min(rows.rows, seen.end), rows.cols}, seen.begin};
  } else {
    return rows;
  }
}

/// The blocks of 16 in `interval` among those of a tile that begins at `first`, a bit each.
__device__ __forceinline__ unsigned block_bits(const Interval& interval, int first) {
  constexpr int kMostBlocks = 16;  // of a tile's side
  const int begin = min(kMostBlocks, max(0, interval.begin - first) / 16);
  const int end = min(kMostBlocks, max(0, interval.end - first) / 16);
  return (1u << end) - min(1u << end, 1u << begin);
}

/// The columns that each row of 16 x 16 score blocks of a warp computes, where tiles are cut finer.
template <int kMBlocks>
struct ComputedColumns {
  Interval of_row[kMBlocks];

  /// Those of a tile whose columns begin at `first`.
  __device__ SomeBlocks<kMBlocks> in_tile(int first) const {
    SomeBlocks<kMBlocks> blocks;
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) blocks.columns[i] = block_bits(of_row[i], first);
    return blocks;
  }
};

/// What is computed and loaded where tiles are cut finer; nothing in instances that do not cut them. Fewer
/// products are no shorter time here: on an H200 a causal forward pass takes 8 to 52 % longer in parts, a
/// backward pass up to 32 %. The warp with the last rows computes every slice, and the others wait for it;
/// code for both kinds of tiles keeps the compiler from laying products and softmax into each other. Tried
/// and left out: one branch round the whole step instead of each product (what is live in both kinds of steps
/// takes as many registers; of 4096 keys forward takes 21, 15 and 8 % longer at head_dim 64, 128 and 256
/// where branches round products take 21, 8 and 15; dq 1 instead of 10 % at 64, and more at 128); a predicate
/// on each product (which ptxas turns into branches: 42 to 83 % longer).
template <Features kFeatures>
struct FinerTiles {
  TileShape part;

  __device__ FinerTiles(const KernelArguments& args, TileShape tile) {
    if constexpr (cuts_tiles(kFeatures)) part = part_of(tile, args.diagonal_slices);
  }
  /// The keys that q tile `m_block` loads: of slices of which it sees something.
  __device__ Interval keys_of_tile(const VisibleBand& band, TileShape tile, int m_block) const {
    if constexpr (!cuts_tiles(kFeatures)) return {};
    return computed_keys(band, {tile.block_m, part.block_n}, m_block);
  }
  /// The queries that kv tile `n_block` loads.
  __device__ Interval queries_of_tile(const VisibleBand& band, TileShape tile, int n_block) const {
    if constexpr (!cuts_tiles(kFeatures)) return {};
    return computed_queries(band, {part.block_m, tile.block_n}, n_block);
  }
  /// The keys that rows of blocks from `query` on compute.
  template <int kMBlocks>
  __device__ ComputedColumns<kMBlocks> keys_of_rows(const VisibleBand& band, int query) const {
    ComputedColumns<kMBlocks> keys;
    if constexpr (cuts_tiles(kFeatures)) {
#pragma unroll
      for (int i = 0; i < kMBlocks; ++i) {
        keys.of_row[i] = computed_keys(band, part, (query + 16 * i) / part.block_m);
      }
    }
    return keys;
  }
  /// The queries that rows of blocks from `key` on compute.
  template <int kMBlocks>
  __device__ ComputedColumns<kMBlocks> queries_of_rows(const VisibleBand& band, int key) const {
    ComputedColumns<kMBlocks> queries;
    if constexpr (cuts_tiles(kFeatures)) {
#pragma unroll
      for (int i = 0; i < kMBlocks; ++i) {
        queries.of_row[i] = computed_queries(band, part, (key + 16 * i) / part.block_n);
      }
    }
    return queries;
  }
};

/// Calls multiply(blocks) with those of the tile that are computed: all, unless the tile is one that the mask
/// cuts and tiles are cut finer.
/// @param full  tells whether the tile is full
template <Features kFeatures, typename Full, typename Blocks, typename Multiply>
__device__ __forceinline__ void on_computed(Full full, const Blocks& blocks, Multiply multiply) {
  if constexpr (cuts_tiles(kFeatures)) {
    if (!full()) return multiply(blocks);
  }
  multiply(AllBlocks{});
}

/// Row `row` of a head of LSE or delta.
__device__ __forceinline__ float* row_value(const KernelArguments& args, TensorName name, int batch, int head,
                                            int row) {
  const DeviceTensor& tensor = args[name];
  return tensor.head<float>(batch, head) + row * tensor.row_stride;
}

/// Makes the scores of a lane's half row before entry `first` and behind entry `last` of it `masked`.
template <int kBlocks>
__device__ __forceinline__ void mask_half_row(Accumulator (&row)[kBlocks], int half, int first, int last,
                                              float masked) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e < first || 8 * j + e > last) row[j].x[2 * half + e] = masked;
    }
  }
}

/// Makes the invisible scores of a block `masked`. Rows are queries from `first_row` on, columns keys from
/// `first_col`; or, if kKeyRows, the other way round. The lane's first entry is at row lane / 4, column
/// 2 * (lane % 4).
template <bool kKeyRows, int kMBlocks, int kNBlocks>
__device__ __forceinline__ void mask_block(WarpAccumulator<kMBlocks, kNBlocks>& s, const VisibleBand& band,
                                           int first_row, int first_col, int lane, float masked) {
  lane = computed_again(lane);
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * i + 8 * half + (lane >> 2);
      const int lane_col = first_col + 2 * (lane & 3);
      const int first = (kKeyRows ? band.first_query(row) : band.first_key(row)) - lane_col;
      const bool is_row = row < (kKeyRows ? band.seqlen_k : band.seqlen_q);
      const int last = (!is_row ? -1 : kKeyRows ? band.last_query(row) : band.last_key(row)) - lane_col;
      mask_half_row(s.tile[i], half, first, last, masked);
    }
  }
}

/// The end of a row of the forward pass: O is normalised, and its LSE stored. A row that saw no key gives O =
/// 0, LSE = -inf. `row_blocks` hold the row, in their upper or lower half.
/// @tparam kNormalised  O is that already
template <bool kNormalised = false, int kBlocks>
__device__ __forceinline__ void finish_row(const KernelArguments& args, int batch, int head, int query,
                                           float max, float sum, Accumulator (&row_blocks)[kBlocks], int half,
                                           int lane) {
  if constexpr (!kNormalised) {
    const float normaliser = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
    scale_half_row(row_blocks, half, normaliser);
  }
  if (lane % 4 == 0 && query < args.band.seqlen_q) {
    *row_value(args, TensorName::lse, batch, head, query) = row_lse(max, fabsf(args.softmax_scale), sum);
  }
}

/// The log that an instantiation writes: none if it is not a general one.
template <Features kFeatures>
__device__ __forceinline__ DeviceTileLog tile_log(const KernelArguments& args) {
  if constexpr (logs_tiles(kFeatures)) {
    return args.log;
  } else {
    return {};
  }
}

/// Whether a query sees a key, both of which may lie beyond the matrix.
__device__ __forceinline__ bool visible(const VisibleBand& band, int query, int key) {
  return query < band.seqlen_q && key < band.seqlen_k && band.visible(query, key);
}

/// This lane's part of the sum of f(entry) over the visible entries of a block with queries as rows (or, if
/// kKeyRows, keys). For the tile log.
/// @param seen  a band, or the SeenEntries of a tile with the same rows
template <bool kKeyRows, int kMBlocks, int kNBlocks, typename Seen, typename F>
__device__ __forceinline__ double visible_sum(const WarpAccumulator<kMBlocks, kNBlocks>& acc,
                                              const Seen& seen, int first_row, int first_col, int lane, F f) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first_row + 16 * i + 8 * (e / 2) + (lane >> 2);
        const int col = first_col + 8 * j + 2 * (lane & 3) + e % 2;
        if (kKeyRows ? visible(seen, col, row) : visible(seen, row, col)) {
          sum += static_cast<double>(f(acc.tile[i][j].x[e]));
        }
      }
    }
  }
  return sum;
}
/// The same over all entries: for blocks whose invisible entries are 0 by then.
template <int kMBlocks, int kNBlocks, typename F>
__device__ __forceinline__ double block_sum(const WarpAccumulator<kMBlocks, kNBlocks>& acc, F f) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum += static_cast<double>(f(acc.tile[i][j].x[e]));
    }
  }
  return sum;
}
/// This lane's part of the sum of a block's entries in rows below `rows` and columns below `cols`.
template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ double inside_sum(const WarpAccumulator<kMBlocks, kNBlocks>& acc, int rows,
                                             int cols, int lane) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (16 * i + 8 * (e / 2) + (lane >> 2) < rows && 8 * j + 2 * (lane & 3) + e % 2 < cols) {
          sum += static_cast<double>(acc.tile[i][j].x[e]);
        }
      }
    }
  }
  return sum;
}
/// The nearest value of the element type.
template <ElementType kType>
__device__ __forceinline__ float rounded(float value) {
  return unpack<kType>(pack<kType>(value, 0.0f)).x;
}

/// Adds the scores of a block to the tile log, as the softmax would take them without a mask.
template <bool kKeyRows, int kMBlocks, int kNBlocks, typename Seen>
__device__ __forceinline__ void log_scores(const TileLogEntry& entry, const KernelArguments& args,
                                           const Seen& seen, const WarpAccumulator<kMBlocks, kNBlocks>& s,
                                           int first_row, int first_col, int lane) {
  if (!entry.open()) return;
  entry.add(&DeviceTileState::scores,
            visible_sum<kKeyRows>(s, seen, first_row, first_col, lane,
                                  [&](float x) { return signed_product(x, args); }));
}

/// Products of a forward pass become scores: with the sign of the scale, -inf where a query does not see the
/// key. A tile that needs neither is left as it is.
template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ void sign_and_mask(WarpAccumulator<kMBlocks, kNBlocks>& s,
                                              const KernelArguments& args, const VisibleBand& band, bool full,
                                              int first_query, int first_key, int lane) {
  if (full && !(args.score_sign < 0.0f)) return;
  s.scale(args.score_sign);
  mask_block<false>(s, band, first_query, first_key, lane, kMinusInfinity);
}

/// O += P V: P from its accumulators, which turn into left operands without leaving the registers.
template <ElementType kType, int kMBlocks, int kNBlocks, int kDBlocks, int kCols, typename Blocks>
__device__ __forceinline__ void multiply_probs(WarpAccumulator<kMBlocks, kDBlocks>& out,
                                               const WarpAccumulator<kMBlocks, kNBlocks>& probs,
                                               const LdmatrixByColumns<kCols>& v, const Blocks& blocks) {
#pragma unroll
  for (int k = 0; k < kNBlocks; ++k) {
    Fragment p[kMBlocks];
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
      p[i] = as_left_operand<kType>(probs.tile[i][2 * k], probs.tile[i][2 * k + 1]);
    }
    step_ab<kType>(out, p, v, k, blocks);
  }
}

/// Rounds a warp's share of an output tile into shared memory, for coalesced stores.
/// @tparam kStep  from one of its columns of blocks to the next
template <ElementType kType, int kStep = 1, int kMBlocks, int kNBlocks, int kCols>
__device__ __forceinline__ void stage_output(SharedTile<kCols> tile,
                                             const WarpAccumulator<kMBlocks, kNBlocks>& acc, int row_block,
                                             int col_block, int lane) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kNBlocks; ++j) {
      const Accumulator& a = acc.tile[i][j];
      tile.store(lane, row_block + i, 2 * (col_block + kStep * (j / 2)) + j % 2, pack<kType>(a.x[0], a.x[1]),
                 pack<kType>(a.x[2], a.x[3]));
    }
  }
}

}  // namespace tilescope::sm80
