// SPDX-License-Identifier: Apache-2.0
// The backward passes of gpu:flash2-simt that multiply: FlashAttention-2, Algorithm 2, in fp32 on CUDA cores.
//
//   kv_backward    owns a kv tile, streams q tiles: dK, dV in registers; fused: dQ reduced into dq_accum
//   dq_backward    owns a q tile, streams kv tiles: dQ in registers
//   rows_backward  the same, and reduces dK and dV into dk_accum and dv_accum
//
// Scores are computed with the owned axis down the rows, so that a warp's part of P and dS stays its own on
// the way to the accumulators it owns; only a reduction over the owned axis needs the other warps' part.
#pragma once

#include "gpu/kernels/flash2_simt.hpp"
#include "gpu/kernels/simt_backward.cuh"

namespace tilescope::simt {

/// One CTA: kv tile `item.block` of one key/value head, past every query head of its group.
template <int Dim, int BlockM, int BlockN, bool Fused, bool Extras>
__global__ void __launch_bounds__(kThreads, Dim <= 192 ? 2 : 1)
    flash2_simt_kv_backward(const __grid_constant__ KernelArguments args) {
  const WorkItem item = args.grid.item(blockIdx.x);
  const int batch = item.head / args.heads_kv, kv_head = item.head % args.heads_kv;
  const int first_key = item.block * BlockN;
  const TileRange range = q_tiles(args.band, {BlockM, BlockN}, item.block);
  const int steps = range.count() * args.group_size();
  const Lane lane = Lane::here();
  const BackwardShared<Dim, BlockM, BlockN, BlockM> shared(shared_memory());
  const auto head_of = [&](int step) { return kv_head * args.group_size() + step / range.count(); };
  const auto m_block_of = [&](int step) {
    return scan_tile(args.scan, range, item.turn, step % range.count());
  };
  const auto load_q = [&](int step) {
    if (step >= steps) return;
    const int head = head_of(step), query = m_block_of(step) * BlockM;
    load_tile<BlockM>(shared.q, query_rows<const float>(args, TensorName::q, batch, head, query));
    load_statistic<BlockM>(shared.lse,
                           statistic_rows<const float>(args, TensorName::lse, batch, head, query));
    load_statistic<BlockM>(shared.delta,
                           statistic_rows<const float>(args, TensorName::delta, batch, head, query));
  };
  const auto load_dout = [&](int step) {
    if (step >= steps) return;
    load_tile<BlockM>(shared.dout, query_rows<const float>(args, TensorName::dout, batch, head_of(step),
                                                           m_block_of(step) * BlockM));
  };
  if (steps > 0) {
    load_tile<BlockN>(shared.k, key_rows<const float>(args, TensorName::k, batch, kv_head, first_key));
    load_tile<BlockN>(shared.v, key_rows<const float>(args, TensorName::v, batch, kv_head, first_key));
  }
  load_dout(0);
  load_q(0);

  QuadTile<BlockN, Dim> dk{}, dv{};
  for (int step = 0; step < steps; ++step) {
    const int head = head_of(step), m_block = m_block_of(step);
    const int first_query = m_block * BlockM;
    const ScorePlace<BlockN, BlockM, true> place(lane, first_query, first_key);
    const TileLogEntry entry(Extras ? args.log : DeviceTileLog{}, step, batch, head, m_block, item.block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    DotTile<BlockN, BlockM> probs, dscores;
    multiply_nt(lane, shared.k, shared.q, probs);
    multiply_nt(lane, shared.v, shared.dout, dscores);
    gradient_tile<Extras, float>(place, first_query, range.full(m_block), args, batch * args.heads + head,
                                 ProbsFromLse{shared.lse}, shared.delta, entry, probs, dscores);
    put(lane, shared.scores, probs);
    __syncwarp();
    multiply_nn<BlockN, BlockM, Dim>(lane, shared.scores, shared.dout, dv);
    __syncthreads();  // dO has been read by all
    load_dout(step + 1);
    be_late(GpuBug::simt_barrier_missing);
    put(lane, shared.scores, dscores);
    if (Fused && !planted(GpuBug::simt_barrier_missing)) {
      __syncthreads();
    } else {
      __syncwarp();
    }
    multiply_nn<BlockN, BlockM, Dim>(lane, shared.scores, shared.q, dk);
    if constexpr (Fused) {
      TransposedQuadTile<BlockM, Dim> dq{};
      multiply_tn<BlockM, BlockN>(lane, shared.scores, shared.k, dq);
      reduce_gradient(lane, query_rows<float>(args, TensorName::dq_accum, batch, head, first_query), dq);
    }
    if constexpr (Extras) {
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(dk) + sum_of(dv));
    }
    __syncthreads();  // Q, dS, LSE and delta have been read by all
    load_q(step + 1);
  }
  store_gradient(lane, key_rows<float>(args, TensorName::dk, batch, kv_head, first_key), args.softmax_scale,
                 dk);
  store_gradient(lane, key_rows<float>(args, TensorName::dv, batch, kv_head, first_key), 1.0f, dv);
}

/// One CTA: q tile `item.block` of one query head. `ReduceKv`: the rows order, which reduces dK and dV; else
/// the dq pass of the split order.
template <int Dim, int BlockM, int BlockN, bool ReduceKv, bool Extras>
__global__ void __launch_bounds__(kThreads, Dim <= 192 ? 2 : 1)
    flash2_simt_q_backward(const __grid_constant__ KernelArguments args) {
  const WorkItem item = args.grid.item(blockIdx.x);
  const int batch = item.head / args.heads, head = item.head % args.heads;
  const int kv_head = head / args.group_size();
  const int first_query = item.block * BlockM;
  const TileRange range = kv_tiles(args.band, {BlockM, BlockN}, item.block);
  const Lane lane = Lane::here();
  const BackwardShared<Dim, BlockM, BlockN, BlockN> shared(shared_memory());
  const auto load_kv = [&](TensorName name, const SharedTile<Dim>& tile, int step) {
    if (step >= range.count()) return;
    const int key = scan_tile(args.scan, range, item.turn, step) * BlockN;
    load_tile<BlockN>(tile, key_rows<const float>(args, name, batch, kv_head, key));
  };
  if (!range.empty()) {
    load_tile<BlockM>(shared.q, query_rows<const float>(args, TensorName::q, batch, head, first_query));
    load_tile<BlockM>(shared.dout, query_rows<const float>(args, TensorName::dout, batch, head, first_query));
    load_statistic<BlockM>(shared.lse,
                           statistic_rows<const float>(args, TensorName::lse, batch, head, first_query));
    if constexpr (!ReduceKv)
      load_statistic<BlockM>(shared.delta,
                             statistic_rows<const float>(args, TensorName::delta, batch, head, first_query));
  }
  load_kv(TensorName::v, shared.v, 0);
  load_kv(TensorName::k, shared.k, 0);
  if constexpr (ReduceKv) {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (!range.empty()) {
      compute_delta<BlockM>(lane, query_rows<const float>(args, TensorName::out, batch, head, first_query),
                            shared.dout, shared.delta);
    }
  }

  QuadTile<BlockM, Dim> dq{};
  for (int step = 0; step < range.count(); ++step) {
    const int n_block = scan_tile(args.scan, range, item.turn, step);
    const int first_key = n_block * BlockN;
    const ScorePlace<BlockM, BlockN, false> place(lane, first_query, first_key);
    const TileLogEntry entry(Extras ? args.log : DeviceTileLog{}, step, batch, head, item.block, n_block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    DotTile<BlockM, BlockN> probs, dscores;
    multiply_nt(lane, shared.q, shared.k, probs);
    multiply_nt(lane, shared.dout, shared.v, dscores);
    gradient_tile<Extras, float>(place, first_query, range.full(n_block), args, item.head,
                                 ProbsFromLse{shared.lse}, shared.delta, entry, probs, dscores);
    if constexpr (ReduceKv) {
      put(lane, shared.scores, probs);
      __syncthreads();
      TransposedQuadTile<BlockN, Dim> dv{};
      multiply_tn<BlockN, BlockM>(lane, shared.scores, shared.dout, dv);
      reduce_gradient(lane, key_rows<float>(args, TensorName::dv_accum, batch, kv_head, first_key), dv);
    }
    __syncthreads();  // V and P have been read by all
    load_kv(TensorName::v, shared.v, step + 1);
    put(lane, shared.scores, dscores);
    if constexpr (ReduceKv) {
      __syncthreads();
      TransposedQuadTile<BlockN, Dim> dk{};
      multiply_tn<BlockN, BlockM>(lane, shared.scores, shared.q, dk);
      reduce_gradient(lane, key_rows<float>(args, TensorName::dk_accum, batch, kv_head, first_key), dk);
    } else {
      __syncwarp();
    }
    multiply_nn<BlockM, BlockN, Dim>(lane, shared.scores, shared.k, dq);
    if constexpr (Extras) {
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(dq));
    }
    __syncthreads();  // K and dS have been read by all
    load_kv(TensorName::k, shared.k, step + 1);
  }
  store_gradient(lane, query_rows<float>(args, TensorName::dq, batch, head, first_query), args.softmax_scale,
                 dq);
}

}  // namespace tilescope::simt
