// SPDX-License-Identifier: Apache-2.0
// The forward pass of gpu:flash2-simt: FlashAttention-2, Algorithm 1, in fp32 on CUDA cores.
//
// Against gpu:flash1: the loops change places. A CTA owns a q tile and streams K and V past it, so that O and
// its maximum and sum stay in registers and cross the SM's boundary once; and a head is cut into as many CTAs
// as it has q tiles, which is what fills the device when the batch is small.
#pragma once

#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/softmax.cuh"

namespace tilescope::cuda_cores {

/// Adds this thread's part of the rows' maxima and sums to the tile log.
template <typename Tile>
__device__ inline void log_rows(Lane lane, const KernelArguments& args, const TileLogEntry& entry,
                                int first_query, const SoftmaxState<Tile::kRowsHere>& state,
                                const Tile& accum) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
    if (first_query + Tile::row(lane, i) >= args.band.seqlen_q) continue;
    const bool seen = state.max[i] > kMinusInfinity;
    if (lane.col == 0 && seen) entry.add(&DeviceTileState::row_max, state.max[i]);
    entry.add(&DeviceTileState::row_sum, state.sum[i]);
  }
  entry.add(&DeviceTileState::accum, sum_of(accum));
}

/// O = accum / row sum and LSE, to slow memory. Source: FlashAttention-2, Algorithm 1, lines 12 to 15.
template <typename Tile>
__device__ inline void finish_forward(Lane lane, const KernelArguments& args, int batch, int head,
                                      int first_query, const SoftmaxState<Tile::kRowsHere>& state,
                                      const Tile& accum) {
  const auto out = query_rows<float>(args, TensorName::out, batch, head, first_query);
  const auto lse = row_values<float>(args, TensorName::lse, batch, head, first_query);
  constexpr int kRun = Tile::kRowsHere < 4 ? Tile::kRowsHere : 4;
  RowRun<kRun> lse_run;
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
    const int row = Tile::row(lane, i);
    const float sum = row_sum(state.sum[i]);
    const float inverse = inverse_sum(sum);
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      const float4 o = accum.quad(i, q);
      store_quad(out, row, Tile::col(lane, 4 * q),
                 {o.x * inverse, o.y * inverse, o.z * inverse, o.w * inverse});
    }
    lse_run.x[i % kRun] = row_lse(state.max[i], fabsf(args.softmax_scale), sum);
    if (lane.col == 0 && i % kRun == kRun - 1) lse_run.store(lse, row - i % kRun);
  }
}

/// One CTA: q tile work.first_block of one head. `AllFeatures`: dropout, a negative scale, padding and the
/// tile log.
template <int Dim, int BlockM, int BlockN, bool AllFeatures>
__global__ void __launch_bounds__(kThreads, Flash2Simt::forward_ctas_per_sm(Dim))
    flash2_simt_forward(const __grid_constant__ KernelArguments args) {
  constexpr TileShape kTile{BlockM, BlockN};
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * BlockM;
  const VisibleBand& band = batch_band<AllFeatures>(args, batch);
  const TileRange range = kv_tiles(band, kTile, m_block);
  const Lane lane = Lane::in_group();

  constexpr ForwardLayout kLayout = Flash2Simt::forward_layout(kTile, Dim);
  float* const shared = shared_memory();
  const SharedTile<Dim> q_tile{shared + kLayout.q()}, k_tile{shared + kLayout.k()};
  const SharedTile<Dim> v_tile{shared + kLayout.v()};
  const SharedProbs<ThreadTile<BlockM, BlockN>> probs{shared + kLayout.probs()};
  const auto load_kv = [&](TensorName name, const SharedTile<Dim>& tile, int step) {
    if (step < range.count()) {
      const int first_key = scan_tile(args.scan, range, work.wave_parity, step) * BlockN;
      load_tile<BlockN>(tile, key_rows<const float>(args, band, name, batch, work.kv_head, first_key));
    }
    __pipeline_commit();
  };

  // Four warps down the rows, so that a row's maximum and sum need no other warp.
  using Scores = ThreadTile<BlockM, BlockN>;
  ThreadTile<BlockM, Dim> accum{};
  SoftmaxState<Scores::kRowsHere> state;
#pragma unroll
  for (int i = 0; i < Scores::kRowsHere; ++i) {
    state.max[i] = kMinusInfinity;
    state.sum[i] = 0.0f;
  }
  if (!range.empty()) {
    load_tile<BlockM>(q_tile, query_rows<const float>(args, TensorName::q, batch, head, first_query));
  }
  load_kv(TensorName::k, k_tile, 0);
  load_kv(TensorName::v, v_tile, 0);

  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step);
    const int first_key = n_block * BlockN;
    __pipeline_wait_prior(1);  // K, and in the first step Q; V may still be on its way
    __syncthreads();
    Scores scores;
    multiply_nt(lane, q_tile, k_tile, scores);
    __syncthreads();
    load_kv(TensorName::k, k_tile, step + 1);

    const ScorePlace<Scores> place(lane, first_query, first_key);
    [[maybe_unused]] const TileLogEntry entry(args.log, step, batch, head, m_block, n_block);
    if constexpr (AllFeatures) {
      sign_scores(scores, args);
      if (entry.open()) entry.add(&DeviceTileState::scores, place.visible_sum(band, scores));
    }
    if (range.full(n_block)) {
      softmax_step<false>(place, args, band, scores, state, accum);
    } else {
      softmax_step<true>(place, args, band, scores, state, accum);
    }
    if constexpr (AllFeatures) {
      if (args.dropout.active()) {
        place.drop(place.kept(args.dropout, work.batch_head), args.dropout.keep_scale, scores);
      }
      if (entry.open()) entry.add(&DeviceTileState::probs, place.visible_sum(band, scores));
    }
    probs.put(lane, scores);
    __syncwarp();

    __pipeline_wait_prior(1);  // V; the next K may still be on its way
    __syncthreads();
    probs.multiply(lane, v_tile, accum);
    if constexpr (AllFeatures) {
      if (entry.open()) log_rows(lane, args, entry, first_query, state, accum);
    }
    __syncthreads();
    load_kv(TensorName::v, v_tile, step + 1);
  }
  finish_forward(lane, args, batch, head, first_query, state, accum);
}

}  // namespace tilescope::cuda_cores
