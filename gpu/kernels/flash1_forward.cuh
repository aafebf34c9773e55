// SPDX-License-Identifier: Apache-2.0
// The forward pass of gpu:flash1: FlashAttention, Algorithm 1 with Algorithm 2's mask and dropout.
//
// Against gpu:standard: S and P never leave the SM. What it pays: O, l and m make a trip to slow memory for
// every K, V tile, and one CTA works through a whole head, so that a device needs as many heads as it has
// SMs.
#pragma once

#include "gpu/kernels/flash1.hpp"
#include "gpu/kernels/simt_softmax.cuh"

namespace tilescope::simt {

/// Scores of a tile become P relative to the tile's own maximum. @return that maximum and the row's sum
struct TileRow {
  float max, sum;
};
template <bool Masked, typename Tile>
__device__ inline TileRow tile_softmax(const ScorePlace<Tile>& place, const KernelArguments& args, int a,
                                       float (&scores)[Tile::kColsHere]) {
  const auto sees = place.template visible<Masked>(args.band, a);
  float tile_max = -kInfinity;
#pragma unroll
  for (int b = 0; b < place.kKeysHere; ++b) {
    if (!Masked || sees(place.key_offset(b))) tile_max = fmaxf(tile_max, scores[b]);
  }
  tile_max = row_max(tile_max);
  const bool seen = !Masked || tile_max > -kInfinity;
  const float offset = seen ? tile_max * args.softmax_scale_log2 : 0.0f;
  float sum = 0.0f;
#pragma unroll
  for (int b = 0; b < place.kKeysHere; ++b) {
    const bool counts = !Masked || sees(place.key_offset(b));
    scores[b] = counts ? fast_exp2(fmaf(scores[b], args.softmax_scale_log2, -offset)) : 0.0f;
    sum += scores[b];
  }
  return {tile_max, row_sum(sum)};
}

/// The slow memory that the steps read and write: O (fp32), l and m, from one query on.
struct RunningRows {
  GlobalRows<float> out, sum, max;

  __device__ RunningRows(const KernelArguments& args, int batch, int head, int first_query)
      : out(query_rows<float>(args,
                              args[TensorName::out_accum].data ? TensorName::out_accum : TensorName::out,
                              batch, head, first_query)),
        sum(statistic_rows<float>(args, TensorName::row_sum, batch, head, first_query)),
        max(statistic_rows<float>(args, TensorName::row_max, batch, head, first_query)) {}
};

/// Line 2: O = 0, l = 0, m = -inf, for the whole head.
__device__ inline void initialise(const RunningRows& head, int threads) {
  const int quads = (head.out.cols + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < head.out.rows * quads; i += threads) {
    store_quad(head.out, i / quads, 4 * (i % quads), {0.0f, 0.0f, 0.0f, 0.0f});
  }
  for (int row = static_cast<int>(threadIdx.x); row < head.sum.rows; row += threads) {
    if (!planted(GpuBug::flash1_sum_not_initialised)) *head.sum.at(row, 0) = 0.0f;
    *head.max.at(row, 0) = -kInfinity;
  }
}

/// O, l and m of a thread's rows as they come from slow memory.
template <typename Tile>
struct RunningTile {
  float4 out[Tile::kRowsHere][Tile::kQuadsHere];
  float max[Tile::kRowsHere], sum[Tile::kRowsHere];

  __device__ void load(Lane lane, const RunningRows& rows) {
#pragma unroll
    for (int i = 0; i < Tile::kRowsHere; ++i) {
      const int row = Tile::row(lane, i);
      max[i] = row < rows.max.rows ? *rows.max.at(row, 0) : -kInfinity;
      sum[i] = row < rows.sum.rows ? *rows.sum.at(row, 0) : 0.0f;
#pragma unroll
      for (int q = 0; q < Tile::kQuadsHere; ++q) {
        out[i][q] = load_quad(rows.out, row, Tile::col(lane, 4 * q));
      }
    }
  }
};

/// Lines 11 to 13: O stays normalised and goes back to slow memory with its statistics.
template <typename Tile>
__device__ inline void merge_rows(Lane lane, const KernelArguments& args, const RunningRows& rows,
                                  const TileRow (&tile)[Tile::kRowsHere], const RunningTile<Tile>& running,
                                  const Tile& product, const TileLogEntry& entry) {
  const float scale = args.softmax_scale_log2;
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
    const int row = Tile::row(lane, i);
    if (row >= rows.sum.rows) continue;
    const float old_max = running.max[i], old_sum = running.sum[i];
    float old_share = 1.0f, tile_share = 0.0f, new_max = old_max, new_sum = old_sum;
    if (tile[i].sum != 0.0f) {  // else the row sees no key of this tile
      new_max = fmaxf(old_max, tile[i].max);
      const float old_weight = old_sum == 0.0f ? 0.0f : old_sum * fast_exp2((old_max - new_max) * scale);
      const float tile_weight =
          planted(GpuBug::flash1_tile_weight_missing) ? 1.0f : fast_exp2((tile[i].max - new_max) * scale);
      new_sum = fmaf(tile_weight, tile[i].sum, old_weight);
      old_share = old_weight / new_sum;
      tile_share = tile_weight / new_sum;
    }
    double accum = 0.0;
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      const float4 o = running.out[i][q], p = product.quad(i, q);
      const float4 merged = {fmaf(tile_share, p.x, old_share * o.x), fmaf(tile_share, p.y, old_share * o.y),
                             fmaf(tile_share, p.z, old_share * o.z), fmaf(tile_share, p.w, old_share * o.w)};
      store_quad(rows.out, row, Tile::col(lane, 4 * q), merged);
      if (entry.open()) accum += static_cast<double>(merged.x) + merged.y + merged.z + merged.w;
    }
    if (lane.col == 0) {
      *rows.max.at(row, 0) = new_max;
      *rows.sum.at(row, 0) = new_sum;
      if (new_max > -kInfinity) entry.add(&DeviceTileState::row_max, new_max);
      entry.add(&DeviceTileState::row_sum, new_sum);
    }
    entry.add(&DeviceTileState::accum, accum);
  }
}

/// One CTA: a whole query head. Each group of warps has its share of every q tile's rows. `Extras`: dropout,
/// a negative scale and the tile log.
template <typename Element, int Dim, int BlockM, int BlockN, int Groups, bool Extras>
__global__ void __launch_bounds__(Groups* kThreads, 1)
    flash1_forward(const __grid_constant__ KernelArguments args) {
  constexpr TileShape kTile{BlockM, BlockN};
  constexpr int kRows = BlockM / Groups;
  const WorkItem item = args.grid.item(blockIdx.x);
  const int batch = item.head / args.heads, head = item.head % args.heads;
  const int kv_head =
      planted(GpuBug::simt_kv_head_interleaved) ? head % args.heads_kv : head / args.group_size();
  using Scores = ThreadTile<kRows, BlockN>;
  using Product = ThreadTile<kRows, Dim>;
  const Lane lane = Lane::in_group();
  const int group = group_of_thread(), group_row = group * kRows;
  const SharedTile<Dim> q_tile{shared_memory() + group_row * Dim};
  const SharedTile<Dim> k_tile{shared_memory() + BlockM * Dim}, v_tile{k_tile.data + BlockN * Dim};
  float* const group_probs = v_tile.data + BlockN * Dim + group_row * BlockN;

  initialise(RunningRows(args, batch, head, 0), Groups * kThreads);
  int visited = 0;
  for (int n_block = 0; n_block < num_n_blocks(args.band, kTile); ++n_block) {
    const TileRange range = q_tiles(args.band, kTile, n_block);
    if (range.empty()) continue;
    const int first_key = n_block * BlockN;
    const auto first_query_of = [&](int step) {
      return scan_tile(args.scan, range, n_block, step) * BlockM + group_row;
    };
    const auto q_rows = [&](int step) {
      return query_rows<const Element>(args, TensorName::q, batch, head, first_query_of(step));
    };
    TileAhead<kRows, Dim, Element> q_ahead;
    q_ahead.fetch(q_rows(0));
    __syncthreads();  // the last step has read K and V, and the head's O, m and l are written
    if (group == 0)
      load_tile<BlockN>(k_tile, key_rows<const Element>(args, TensorName::k, batch, kv_head, first_key));
    if (group == Groups - 1) {
      load_tile<BlockN>(v_tile, key_rows<const Element>(args, TensorName::v, batch, kv_head, first_key));
    }
    q_ahead.land(q_tile, q_rows(0));
    for (int step = 0; step < range.count(); ++step) {
      const int m_block = scan_tile(args.scan, range, n_block, step);
      const int first_query = first_query_of(step);
      const ScorePlace<Scores> place(lane, first_query, first_key);
      const TileLogEntry entry(Extras ? args.log : DeviceTileLog{}, visited++, batch, head, m_block, n_block);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      Scores scores;
      multiply_nt<64>(lane, q_tile, k_tile, scores);
      __syncthreads();
      const bool more = step + 1 < range.count();
      if (more) q_ahead.fetch(q_rows(step + 1));
      if constexpr (Extras) {
        multiply_scores(scores, args.score_sign);
        if (entry.open()) entry.add(&DeviceTileState::scores, place.visible_sum(args.band, scores));
      }
      TileRow tile_rows[Product::kRowsHere];
#pragma unroll
      for (int a = 0; a < Product::kRowsHere; ++a) {
        tile_rows[a] = range.full(m_block) ? tile_softmax<false>(place, args, a, scores.x[a])
                                           : tile_softmax<true>(place, args, a, scores.x[a]);
      }
      if constexpr (Extras) {
        if (args.dropout.active()) {
          place.drop(place.kept(args.dropout, item.head), args.dropout.keep_scale, scores);
        }
      }
      round_tile<Element>(scores);
      if constexpr (Extras) {
        if (entry.open()) entry.add(&DeviceTileState::probs, place.visible_sum(args.band, scores));
      }
      if (more) q_ahead.land(q_tile, q_rows(step + 1));
      const OwnProbs<Scores> probs{group_probs};
      probs.put(lane, scores);
      RunningTile<Product> running;
      const RunningRows rows(args, batch, head, first_query);
      running.load(lane, rows);  // early, so that the product hides the trip
      __syncwarp();
      Product product{};
      probs.multiply(lane, v_tile, product);
      __syncwarp();  // a row's eight lanes have read m and l before the first of them overwrites both
      merge_rows(lane, args, rows, tile_rows, running, product, entry);
    }
  }
}

}  // namespace tilescope::simt
