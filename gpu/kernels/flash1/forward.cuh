// SPDX-License-Identifier: Apache-2.0
// The forward pass of gpu:flash1: FlashAttention, Algorithm 1 with Algorithm 2's mask and dropout.
//
// Against gpu:standard: S and P never leave the SM. What it pays: O, l and m make a trip to slow memory for
// every K, V tile, and one CTA works through a whole head, so that a device needs as many heads as it has
// SMs.
#pragma once

#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash1/rows_before.cuh"
#include "gpu/primitives/common/merged_row.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/softmax.cuh"

namespace tilescope::cuda_cores {

/// Scores of a tile become P relative to the tile's own maximum. @return that maximum and the row's sum
template <bool Masked, typename Tile>
__device__ inline TileRow tile_softmax(const ScorePlace<Tile>& place, const KernelArguments& args,
                                       const VisibleBand& band, int a, float (&scores)[Tile::kColsHere]) {
  const auto sees = place.template visible<Masked>(band, a);
  float tile_max = kMinusInfinity;
#pragma unroll
  for (int b = 0; b < place.kKeysHere; ++b) {
    if (!Masked || sees(place.key_offset(b))) tile_max = fmaxf(tile_max, scores[b]);
  }
  tile_max = row_max(tile_max);
  const float scale = args.softmax_scale_log2;
  const float shift = exponent_shift<!Masked>(tile_max, scale);
  float sum = 0.0f;
#pragma unroll
  for (int b = 0; b < place.kKeysHere; ++b) {
    const bool counts = !Masked || sees(place.key_offset(b));
    scores[b] = counts ? exp2_approx(score_exponent(scores[b], scale, shift)) : 0.0f;
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
        sum(row_values<float>(args, TensorName::row_sum, batch, head, first_query)),
        max(row_values<float>(args, TensorName::row_max, batch, head, first_query)) {}
};

/// Line 2: O = 0, l = 0, m = -inf, for the whole head.
__device__ inline void initialise(const RunningRows& head, int threads) {
  zero_rows(head.out, threads);
  for (int row = static_cast<int>(threadIdx.x); row < head.sum.rows; row += threads) {
    *head.sum.at(row, 0) = 0.0f;
    *head.max.at(row, 0) = kMinusInfinity;
  }
}

/// Line 12: O stays normalised and goes back to slow memory. `shares` are old_share and tile_share by row.
/// @return the sum of what this thread wrote, for the tile log
template <bool AllFeatures, typename Tile>
__device__ inline double merge_out(Lane lane, const GlobalRows<float>& out, const float2* shares,
                                   const RowsBefore<Tile>& before, const Tile& product) {
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
    const int row = Tile::row(lane, i);
    const auto [old_share, tile_share] = shares[row];
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      const float4 o = before.x[i][q], p = product.quad(i, q);
      const float4 merged = {fmaf(tile_share, p.x, old_share * o.x), fmaf(tile_share, p.y, old_share * o.y),
                             fmaf(tile_share, p.z, old_share * o.z), fmaf(tile_share, p.w, old_share * o.w)};
      store_quad(out, row, Tile::col(lane, 4 * q), merged);
      if (AllFeatures && row < out.rows)
        sum += static_cast<double>(merged.x) + merged.y + merged.z + merged.w;
    }
  }
  return sum;
}

/// One CTA: a whole query head. A row's softmax is the work of one warp, and P V is laid over all of them in
/// the parts that are nearest to squares; the rows' shares go through shared memory with P. `AllFeatures`:
/// dropout, a negative scale and the tile log.
template <typename Element, int Dim, int BlockM, int BlockN, int Groups, bool AllFeatures>
__global__ void __launch_bounds__(Groups* kThreads, Flash1::kForwardCtasPerSm)
    flash1_forward(const __grid_constant__ KernelArguments args) {
  constexpr TileShape kTile{BlockM, BlockN};
  constexpr int kGroupRows = BlockM / Groups;  // that a group loads
  const CtaWork work = query_work(args, num_n_blocks(args.band, kTile));
  const int batch = work.batch, head = work.first_head, kv_head = work.kv_head;
  using Scores = ThreadTile<BlockM, BlockN, Groups * kWarps>;
  using Product = SquarestTile<BlockM, Dim, Groups * kWarps>;
  const Lane lane = Lane::in_cta();
  const int group = group_of_thread(), group_row = group * kGroupRows;
  constexpr ForwardLayout kLayout = Flash1::forward_layout(kTile, Dim);
  float* const shared = shared_memory();
  const SharedTile<Dim> q_tile{shared + kLayout.q()}, group_q_tile{q_tile.data + group_row * Dim};
  const SharedTile<Dim> k_tile{shared + kLayout.k()}, v_tile{shared + kLayout.v()};
  const SharedProbs<Scores> probs{shared + kLayout.probs()};
  float2* const shares = reinterpret_cast<float2*>(shared + kLayout.rows());

  initialise(RunningRows(args, batch, head, 0), Groups * kThreads);
  const VisibleBand& band = batch_band<AllFeatures>(args, batch);
  int visited = 0;
  for (int n_block = work.first_block; n_block < work.end_block; ++n_block) {
    const TileRange range = q_tiles<AllFeatures>(band, kTile, n_block);
    if (range.empty()) continue;
    const int first_key = n_block * BlockN;
    const auto group_q_rows = [&](int step) {
      const int first_query = scan_tile(args.scan, range, n_block, step) * BlockM + group_row;
      return query_rows<const Element>(args, TensorName::q, batch, head, first_query);
    };
    TileAhead<kGroupRows, Dim, Element> q_ahead;
    q_ahead.fetch(group_q_rows(0));
    __syncthreads();  // the last step has read K and V, and the head's O, m and l are written
    if (group == 0)
      load_tile<BlockN>(k_tile,
                        key_rows<const Element>(args, band, TensorName::k, batch, kv_head, first_key));
    if (group == Groups - 1) {
      load_tile<BlockN>(v_tile,
                        key_rows<const Element>(args, band, TensorName::v, batch, kv_head, first_key));
    }
    q_ahead.land(group_q_tile, group_q_rows(0));
    for (int step = 0; step < range.count(); ++step) {
      note_step(args, visited);
      const int m_block = scan_tile(args.scan, range, n_block, step);
      const int first_query = m_block * BlockM;
      const bool full = range.full(m_block), more = step + 1 < range.count();
      const RunningRows rows(args, batch, head, first_query);
      const TileLogEntry entry(AllFeatures ? args.log : DeviceTileLog{}, visited++, batch, head, m_block,
                               n_block);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();  // Q is there, and the last step has read P and the shares
      constexpr int kRun = Scores::kRowsHere < 4 ? Scores::kRowsHere : 4;
      RowRun<kRun> max[Scores::kRowsHere / kRun], sum[Scores::kRowsHere / kRun];
#pragma unroll
      for (int run = 0; run < Scores::kRowsHere / kRun; ++run) {  // early, so that the product hides the trip
        max[run] = RowRun<kRun>::load(rows.max, Scores::row(lane, run * kRun), kMinusInfinity);
        sum[run] = RowRun<kRun>::load(rows.sum, Scores::row(lane, run * kRun), 0.0f);
      }
      Scores scores;
      multiply_nt<64>(lane, q_tile, k_tile, scores);
      const ScorePlace<Scores> place(lane, first_query, first_key);
      if constexpr (AllFeatures) {
        sign_scores(scores, args);
        if (entry.open()) entry.add(&DeviceTileState::scores, place.visible_sum(band, scores));
      }
#pragma unroll
      for (int a = 0; a < Scores::kRowsHere; ++a) {
        const TileRow tile = full ? tile_softmax<false>(place, args, band, a, scores.x[a])
                                  : tile_softmax<true>(place, args, band, a, scores.x[a]);
        float &row_max = max[a / kRun].x[a % kRun], &row_sum = sum[a / kRun].x[a % kRun];
        const MergedRow row(tile, row_max, row_sum, args.softmax_scale_log2);
        row_max = row.max;
        row_sum = row.sum;
        if (lane.col == 0) {
          shares[Scores::row(lane, a)] = {row.old_share, row.tile_share};
          if (row.max > kMinusInfinity) entry.add(&DeviceTileState::row_max, row.max);
          entry.add(&DeviceTileState::row_sum, row.sum);
        }
      }
      __syncwarp();  // a row's eight lanes have read m and l before the first of them overwrites both
      if (lane.col == 0) {
#pragma unroll
        for (int run = 0; run < Scores::kRowsHere / kRun; ++run) {
          max[run].store(rows.max, Scores::row(lane, run * kRun));
          sum[run].store(rows.sum, Scores::row(lane, run * kRun));
        }
      }
      if constexpr (AllFeatures) {
        if (args.dropout.active()) {
          place.drop(place.kept(args.dropout, work.batch_head), args.dropout.keep_scale, scores);
        }
      }
      round_tile<Element>(scores);
      if constexpr (AllFeatures) {
        if (entry.open()) entry.add(&DeviceTileState::probs, place.visible_sum(band, scores));
      }
      if (more) q_ahead.fetch(group_q_rows(step + 1));
      probs.put(lane, scores);
      __syncthreads();                                   // P and the shares are there, and Q has been read
      const RowsBefore<Product> before(lane, rows.out);  // early, so that the product hides the trip
      if (more) q_ahead.land(group_q_tile, group_q_rows(step + 1));
      Product product{};
      probs.multiply(lane, v_tile, product);
      const double accum = merge_out<AllFeatures>(lane, rows.out, shares, before, product);
      if (AllFeatures && entry.open()) entry.add(&DeviceTileState::accum, accum);
    }
  }
}

}  // namespace tilescope::cuda_cores
