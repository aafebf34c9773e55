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
#include "gpu/kernels/simt_softmax.cuh"

namespace tilescope::simt {

/// Shared memory of a backward pass.
template <int Dim, int BlockM, int BlockN, int ScoreCols>
struct BackwardShared {
  SharedTile<Dim> q, dout, k, v;
  SharedTile<ScoreCols> scores;  // P, then dS
  float *lse, *delta;

  __device__ explicit BackwardShared(float* base)
      : q{base},
        dout{base + BlockM * Dim},
        k{base + 2 * BlockM * Dim},
        v{k.data + BlockN * Dim},
        scores{v.data + BlockN * Dim},
        lse(scores.data + BlockM * BlockN),
        delta(lse + BlockM) {}
};

/// Copies a row statistic of a q tile; zeros beyond the matrix.
template <int Rows>
__device__ inline void load_statistic(float* destination, const GlobalRows<const float>& source) {
  const int row = static_cast<int>(threadIdx.x);
  if (row >= Rows) return;
  const bool valid = row < source.rows;
  __pipeline_memcpy_async(destination + row, valid ? source.at(row, 0) : source.data, 4, valid ? 0 : 4);
}

/// P and dS of one tile from its scores and dP, with mask, dropout, sign and tile log. `probs` leaves as it
/// enters its product.
template <bool Extras, int Rows, int Cols, bool RowsAreKeys>
__device__ inline void gradient_tile(const ScorePlace<Rows, Cols, RowsAreKeys>& place, int tile_query,
                                     bool full, const KernelArguments& args, int batch_head, const float* lse,
                                     const float* delta, const TileLogEntry& entry,
                                     DotTile<Rows, Cols>& probs, DotTile<Rows, Cols>& dscores) {
  [[maybe_unused]] std::uint64_t kept = 0;
  if constexpr (Extras) {
    multiply_scores(probs, args.score_sign);
    if (args.dropout.active()) {
      kept = place.kept(args.dropout, batch_head);
      place.drop(kept, args.dropout.keep_scale, dscores);
    }
    if (entry.open()) {
      entry.add(&DeviceTileState::scores, place.visible_sum(args.band, probs));
      entry.add(&DeviceTileState::dprobs, place.visible_sum(args.band, dscores));
    }
  }
  if (full) {
    gradient_step<false>(place, tile_query, args, lse, delta, probs, dscores);
  } else {
    gradient_step<true>(place, tile_query, args, lse, delta, probs, dscores);
  }
  if constexpr (Extras) {
    if (args.dropout.active()) place.drop(kept, args.dropout.keep_scale, probs);
    if (entry.open()) {
      entry.add(&DeviceTileState::probs, place.visible_sum(args.band, probs));
      entry.add(&DeviceTileState::dscores, place.visible_sum(args.band, dscores));
    }
  }
}

/// Writes an accumulator times `factor` to a gradient.
template <int Rows, int Dim>
__device__ inline void store_gradient(Lane lane, const GlobalRows<float>& target, float factor,
                                      const QuadTile<Rows, Dim>& accum) {
#pragma unroll
  for (int i = 0; i < Rows / (kWarps * kLaneRows); ++i) {
#pragma unroll
    for (int j = 0; j < Dim / (4 * kLaneCols); ++j) {
      const float4 x = accum.x[i][j];
      store_quad(target, lane.first_row<Rows>() + kLaneRows * i, 4 * (lane.col + kLaneCols * j),
                 {x.x * factor, x.y * factor, x.z * factor, x.w * factor});
    }
  }
}

/// Adds a tile's part of a gradient to an fp32 accumulator in slow memory.
template <int Rows, int Dim>
__device__ inline void reduce_gradient(Lane lane, const GlobalRows<float>& target,
                                       const QuadTile<Rows, Dim>& part) {
#pragma unroll
  for (int i = 0; i < Rows / (kWarps * kLaneRows); ++i) {
#pragma unroll
    for (int j = 0; j < Dim / (4 * kLaneCols); ++j) {
      reduce_quad(target, lane.first_row<Rows>() + kLaneRows * i, 4 * (lane.col + kLaneCols * j),
                  part.x[i][j]);
    }
  }
}

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
  const auto rows_of = [&](TensorName name, int step, int cols) {
    const int head = kv_head * args.group_size() + step / range.count();
    const int m_block = scan_tile(args.scan, range, item.block, step % range.count());
    return GlobalRows<const float>(args[name], batch, head, m_block * BlockM, args.band.seqlen_q, cols);
  };
  const auto load_q = [&](int step) {
    if (step >= steps) return;
    load_tile<BlockM>(shared.q, rows_of(TensorName::q, step, args.head_dim));
    load_statistic<BlockM>(shared.lse, rows_of(TensorName::lse, step, 1));
    load_statistic<BlockM>(shared.delta, rows_of(TensorName::delta, step, 1));
  };
  const auto load_dout = [&](int step) {
    if (step < steps) load_tile<BlockM>(shared.dout, rows_of(TensorName::dout, step, args.head_dim));
  };
  const auto kv_rows = [&](TensorName name) {
    return GlobalRows<const float>(args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim);
  };
  if (steps > 0) {
    load_tile<BlockN>(shared.k, kv_rows(TensorName::k));
    load_tile<BlockN>(shared.v, kv_rows(TensorName::v));
  }
  load_dout(0);
  load_q(0);

  QuadTile<BlockN, Dim> dk{}, dv{};
  for (int step = 0; step < steps; ++step) {
    const int head = kv_head * args.group_size() + step / range.count();
    const int m_block = scan_tile(args.scan, range, item.block, step % range.count());
    const int first_query = m_block * BlockM;
    const ScorePlace<BlockN, BlockM, true> place(lane, first_query, first_key);
    const TileLogEntry entry(Extras ? args.log : DeviceTileLog{}, step, batch, head, m_block, item.block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    DotTile<BlockN, BlockM> probs, dscores;
    multiply_nt(lane, shared.k, shared.q, probs);
    multiply_nt(lane, shared.v, shared.dout, dscores);
    gradient_tile<Extras>(place, first_query, range.full(m_block), args, batch * args.heads + head,
                          shared.lse, shared.delta, entry, probs, dscores);
    put(lane, shared.scores, probs);
    __syncwarp();
    multiply_nn<BlockN, BlockM, Dim>(lane, shared.scores, shared.dout, dv);
    __syncthreads();  // dO has been read by all
    load_dout(step + 1);
    put(lane, shared.scores, dscores);
    if constexpr (Fused) {
      __syncthreads();
    } else {
      __syncwarp();
    }
    multiply_nn<BlockN, BlockM, Dim>(lane, shared.scores, shared.q, dk);
    if constexpr (Fused) {
      QuadTile<BlockM, Dim> dq{};
      multiply_tn<BlockM, BlockN, Dim>(lane, shared.scores, shared.k, dq);
      reduce_gradient(lane,
                      GlobalRows<float>(args[TensorName::dq_accum], batch, head, first_query,
                                        args.band.seqlen_q, args.head_dim),
                      dq);
    }
    if constexpr (Extras) {
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(dk) + sum_of(dv));
    }
    __syncthreads();  // Q, dS, LSE and delta have been read by all
    load_q(step + 1);
  }
  const auto gradient = [&](TensorName name) {
    return GlobalRows<float>(args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim);
  };
  store_gradient(lane, gradient(TensorName::dk), args.softmax_scale, dk);
  store_gradient(lane, gradient(TensorName::dv), 1.0f, dv);
}

/// delta = rowsum(dO * O) of the q tile that lies in shared memory, O read from slow memory.
template <int Rows, int Dim>
__device__ inline void compute_delta(Lane lane, const GlobalRows<const float>& out, SharedTile<Dim> dout,
                                     float* delta) {
  for (int i = 0; i < Rows / (kWarps * kLaneRows); ++i) {
    const int row = lane.first_row<Rows>() + kLaneRows * i;
    float sum = 0.0f;
    if (row < out.rows) {
      for (int col = lane.col; col < out.cols; col += kLaneCols) sum += dout.at(row, col) * *out.at(row, col);
    }
    sum = row_sum(sum);
    if (lane.col == 0) delta[row] = sum;
  }
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
  const auto q_rows = [&](TensorName name, int cols) {
    return GlobalRows<const float>(args[name], batch, head, first_query, args.band.seqlen_q, cols);
  };
  const auto load_kv = [&](TensorName name, const SharedTile<Dim>& tile, int step) {
    if (step >= range.count()) return;
    const int key = scan_tile(args.scan, range, item.block, step) * BlockN;
    load_tile<BlockN>(
        tile, GlobalRows<const float>(args[name], batch, kv_head, key, args.band.seqlen_k, args.head_dim));
  };
  if (!range.empty()) {
    load_tile<BlockM>(shared.q, q_rows(TensorName::q, args.head_dim));
    load_tile<BlockM>(shared.dout, q_rows(TensorName::dout, args.head_dim));
    load_statistic<BlockM>(shared.lse, q_rows(TensorName::lse, 1));
    if constexpr (!ReduceKv) load_statistic<BlockM>(shared.delta, q_rows(TensorName::delta, 1));
  }
  load_kv(TensorName::v, shared.v, 0);
  load_kv(TensorName::k, shared.k, 0);
  if constexpr (ReduceKv) {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (!range.empty()) {
      compute_delta<BlockM>(lane, q_rows(TensorName::out, args.head_dim), shared.dout, shared.delta);
    }
  }

  QuadTile<BlockM, Dim> dq{};
  for (int step = 0; step < range.count(); ++step) {
    const int n_block = scan_tile(args.scan, range, item.block, step);
    const int first_key = n_block * BlockN;
    const ScorePlace<BlockM, BlockN, false> place(lane, first_query, first_key);
    const TileLogEntry entry(Extras ? args.log : DeviceTileLog{}, step, batch, head, item.block, n_block);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    DotTile<BlockM, BlockN> probs, dscores;
    multiply_nt(lane, shared.q, shared.k, probs);
    multiply_nt(lane, shared.dout, shared.v, dscores);
    gradient_tile<Extras>(place, first_query, range.full(n_block), args, item.head, shared.lse, shared.delta,
                          entry, probs, dscores);
    const auto kv_accum = [&](TensorName name) {
      return GlobalRows<float>(args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim);
    };
    if constexpr (ReduceKv) {
      put(lane, shared.scores, probs);
      __syncthreads();
      QuadTile<BlockN, Dim> dv{};
      multiply_tn<BlockN, BlockM, Dim>(lane, shared.scores, shared.dout, dv);
      reduce_gradient(lane, kv_accum(TensorName::dv_accum), dv);
    }
    __syncthreads();  // V and P have been read by all
    load_kv(TensorName::v, shared.v, step + 1);
    put(lane, shared.scores, dscores);
    if constexpr (ReduceKv) {
      __syncthreads();
      QuadTile<BlockN, Dim> dk{};
      multiply_tn<BlockN, BlockM, Dim>(lane, shared.scores, shared.q, dk);
      reduce_gradient(lane, kv_accum(TensorName::dk_accum), dk);
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
  store_gradient(
      lane,
      GlobalRows<float>(args[TensorName::dq], batch, head, first_query, args.band.seqlen_q, args.head_dim),
      args.softmax_scale, dq);
}

}  // namespace tilescope::simt
