// SPDX-License-Identifier: Apache-2.0
// The backward passes of gpu:flash2-simt that multiply: FlashAttention-2, Algorithm 2, in fp32 on CUDA cores.
//
//   kv_backward    owns a kv tile, streams q tiles: dK, dV in registers; fused: dQ reduced into dq_accum
//   dq_backward    owns a q tile, streams kv tiles: dQ in registers
//   rows_backward  the same, and reduces dK and dV into dk_accum and dv_accum
#pragma once

#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/backward.cuh"

namespace tilescope::cuda_cores {

/// One CTA: one kv tile of one key/value head, past every query head of its group.
template <int Dim, int BlockM, int BlockN, bool Fused, bool AllFeatures>
__global__ void __launch_bounds__(kBackwardGroups* kThreads, kBackwardCtasPerSm)
    flash2_simt_kv_backward(const __grid_constant__ KernelArguments args) {
  using Tiles = BackwardTiles<Dim, BlockM, BlockN>;
  const CtaWork work = kv_work(args);
  const int batch = work.batch, kv_head = work.kv_head, n_block = work.first_block;
  const int first_key = n_block * BlockN;
  const VisibleBand& band = batch_band<AllFeatures>(args, batch);
  const TileRange range = q_tiles<AllFeatures>(band, {BlockM, BlockN}, n_block);
  const int steps = range.count() * args.group_size();
  const Role role = role_of_thread();
  const bool first = role == Role::probs;
  const BackwardShared<Dim, BlockM, BlockN> shared(shared_memory());
  QueryTiles tiles{range, args.scan, work.wave_parity, work.first_head};
  // A group loads what its last product has read.
  const auto load_rows = [&](const QueryTiles& at) {
    const int query = at.m_block() * BlockM;
    load_tile<BlockM>(
        either(first, shared.dout, shared.q),
        query_rows<const float>(args, first ? TensorName::dout : TensorName::q, batch, at.head, query));
    load_row_values<BlockM>(
        first ? shared.lse : shared.delta,
        row_values<const float>(args, first ? TensorName::lse : TensorName::delta, batch, at.head, query));
  };
  if (steps > 0) {
    load_tile<BlockN>(
        either(first, shared.k, shared.v),
        key_rows<const float>(args, band, first ? TensorName::k : TensorName::v, batch, kv_head, first_key));
    load_rows(tiles);
  }

  typename Tiles::KvGradient gradient{};  // dV, dK
  for (int step = 0; step < steps; ++step) {
    note_step(args, step);
    const int head = tiles.head, m_block = tiles.m_block();
    const int first_query = m_block * BlockM;
    const TileLogEntry entry(AllFeatures ? args.log : DeviceTileLog{}, step, batch, head, m_block, n_block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    typename Tiles::Scores scores;
    multiply_scores(role, shared, scores);
    exchange_scores<AllFeatures, float>(role, shared, first_query, first_key, range.full(m_block), args, band,
                                        batch * args.heads + head, ProbsFromLse{shared.lse}, entry, scores);
    multiply_gradient(role, shared, gradient);
    if constexpr (AllFeatures) {
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(gradient));
    }
    __syncthreads();  // dS is whole; Q, dO, LSE and delta have been read by all
    tiles.advance();
    if (step + 1 < steps) load_rows(tiles);
    if constexpr (Fused) {
      typename Tiles::QGradient dq{};
      multiply_nn(Lane::in_cta(), shared.dscores, shared.k, dq);
      reduce_gradient(Lane::in_cta(), query_rows<float>(args, TensorName::dq_accum, batch, head, first_query),
                      dq);
    }
  }
  store_gradient(Lane::in_group(),
                 key_rows<float>(args, first ? TensorName::dv : TensorName::dk, batch, kv_head, first_key),
                 first ? 1.0f : args.softmax_scale, gradient);
}

/// One CTA: one q tile of one query head. `ReduceKv`: the rows order, which reduces dK and dV; else
/// the dq pass of the split order.
template <int Dim, int BlockM, int BlockN, bool ReduceKv, bool AllFeatures>
__global__ void __launch_bounds__(kBackwardGroups* kThreads, kBackwardCtasPerSm)
    flash2_simt_q_backward(const __grid_constant__ KernelArguments args) {
  using Tiles = BackwardTiles<Dim, BlockM, BlockN>;
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head, kv_head = work.kv_head, m_block = work.first_block;
  const int first_query = m_block * BlockM;
  const VisibleBand& band = batch_band<AllFeatures>(args, batch);
  const TileRange range = kv_tiles(band, {BlockM, BlockN}, m_block);
  const Role role = role_of_thread();
  const bool first = role == Role::probs;
  const BackwardShared<Dim, BlockM, BlockN> shared(shared_memory());
  const auto load_keys = [&](TensorName name, const SharedTile<Dim>& tile, int step) {
    if (step >= range.count()) return;
    const int key = scan_tile(args.scan, range, work.wave_parity, step) * BlockN;
    load_tile<BlockN>(tile, key_rows<const float>(args, band, name, batch, kv_head, key));
  };
  if (!range.empty()) {
    load_tile<BlockM>(
        either(first, shared.q, shared.dout),
        query_rows<const float>(args, first ? TensorName::q : TensorName::dout, batch, head, first_query));
    if (first) {
      load_row_values<BlockM>(shared.lse,
                              row_values<const float>(args, TensorName::lse, batch, head, first_query));
    } else if (!ReduceKv) {
      load_row_values<BlockM>(shared.delta,
                              row_values<const float>(args, TensorName::delta, batch, head, first_query));
    }
  }
  load_keys(first ? TensorName::k : TensorName::v, either(first, shared.k, shared.v), 0);
  if constexpr (ReduceKv) {
    const auto out = query_rows<const float>(args, TensorName::out, batch, head, first_query);
    DeltaRows<BlockM, Dim, float> delta_rows;
    delta_rows.fetch(Lane::in_cta(), out);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (!range.empty()) delta_rows.put(Lane::in_cta(), out, shared.dout, shared.delta);
  }

  typename Tiles::QGradient dq{};
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step);
    const int first_key = n_block * BlockN;
    const TileLogEntry entry(AllFeatures ? args.log : DeviceTileLog{}, step, batch, head, m_block, n_block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    typename Tiles::Scores scores;
    multiply_scores(role, shared, scores);
    exchange_scores<AllFeatures, float>(role, shared, first_query, first_key, range.full(n_block), args, band,
                                        work.batch_head, ProbsFromLse{shared.lse}, entry, scores);
    if (!first) load_keys(TensorName::v, shared.v, step + 1);
    if constexpr (ReduceKv) {
      typename Tiles::KvGradient part{};
      multiply_gradient(role, shared, part);
      reduce_gradient(Lane::in_group(),
                      key_rows<float>(args, first ? TensorName::dv_accum : TensorName::dk_accum, batch,
                                      kv_head, first_key),
                      part);
    }
    __syncthreads();  // dS is whole
    multiply_nn(Lane::in_cta(), shared.dscores, shared.k, dq);
    if constexpr (AllFeatures) {
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(dq));
    }
    __syncthreads();  // K and dS have been read by all
    if (first) load_keys(TensorName::k, shared.k, step + 1);
  }
  store_gradient(Lane::in_cta(), query_rows<float>(args, TensorName::dq, batch, head, first_query),
                 args.softmax_scale, dq);
}

}  // namespace tilescope::cuda_cores
