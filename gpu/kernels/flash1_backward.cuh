// SPDX-License-Identifier: Apache-2.0
// The backward pass of gpu:flash1: FlashAttention, Algorithm 4. One CTA works through a whole key/value head:
// dK and dV of a kv tile stay in registers, dQ makes a trip to slow memory at every step.
#pragma once

#include "gpu/kernels/flash1.hpp"
#include "gpu/kernels/simt_backward.cuh"

namespace tilescope::simt {

/// Line 5: zeroes the rows of one head.
template <typename Element>
__device__ inline void zero_rows(const GlobalRows<Element>& rows, int threads) {
  const int quads = (rows.cols + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows.rows * quads; i += threads) {
    store_quad(rows, i / quads, 4 * (i % quads), {0.0f, 0.0f, 0.0f, 0.0f});
  }
}

/// Line 21, dQ += dS K in slow memory: what is there ...
template <typename Quads>
__device__ inline Quads load_rows(Lane lane, const GlobalRows<float>& source) {
  Quads quads;
#pragma unroll
  for (int i = 0; i < Quads::kRowsHere; ++i) {
#pragma unroll
    for (int j = 0; j < Quads::kQuadsHere; ++j) {
      quads.x[i][j] = load_quad(source, Quads::row(lane, i), Quads::col(lane, j));
    }
  }
  return quads;
}
/// ... and the sum, of which `before` is known, or null where there are no registers for it.
template <typename Quads>
__device__ inline void store_sum(Lane lane, const GlobalRows<float>& target, const Quads* before,
                                 const Quads& part) {
#pragma unroll
  for (int i = 0; i < Quads::kRowsHere; ++i) {
    const int row = Quads::row(lane, i);
    if (row >= target.rows) continue;
#pragma unroll
    for (int j = 0; j < Quads::kQuadsHere; ++j) {
      const int col = Quads::col(lane, j);
      float4 x = before ? before->x[i][j] : load_quad(target, row, col);
      if (planted(GpuBug::flash1_dq_overwrites)) x = {0.0f, 0.0f, 0.0f, 0.0f};
      const float4 y = part.x[i][j];
      store_quad(target, row, col, {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w});
    }
  }
}

/// One CTA: a whole key/value head. Each group of warps has its share of a kv tile's keys, and of a q tile's
/// rows where delta and dQ are concerned.
template <typename Element, int Dim, int BlockM, int BlockN, int Groups>
__global__ void __launch_bounds__(Groups* kThreads, 1)
    flash1_backward(const __grid_constant__ KernelArguments args) {
  constexpr TileShape kTile{BlockM, BlockN};
  constexpr int kKeys = BlockN / Groups, kQueries = BlockM / Groups;
  using DqPart = TransposedQuadTile<kQueries, Dim>;
  // One group owns dK, dV and dQ of all rows, and has no registers left for what it will need next.
  constexpr bool kRoomAhead = Groups > 1;
  const WorkItem item = args.grid.item(blockIdx.x);
  const int batch = item.head / args.heads_kv, kv_head = item.head % args.heads_kv;
  const int first_head = kv_head * args.group_size();
  const Lane lane = Lane::here();
  const int group = group_of_thread(), group_key = group * kKeys, group_query = group * kQueries;
  const BackwardShared<Dim, BlockM, BlockN, BlockM> shared(shared_memory());
  const SharedTile<Dim> k_tile{shared.k.data + group_key * Dim}, v_tile{shared.v.data + group_key * Dim};
  const SharedTile<Dim> q_tile{shared.q.data + group_query * Dim};  // the rows that this group loads
  const SharedTile<Dim> dout_tile{shared.dout.data + group_query * Dim};
  const SharedTile<BlockM> score_tile{shared.scores.data + group_key * BlockM};
  float* const row_max_of = shared.lse;  // FlashAttention keeps m and l where FlashAttention-2 keeps LSE
  float* const row_sum_of = shared.delta + BlockM;
  for (int head = first_head; head < first_head + args.group_size(); ++head) {
    zero_rows(query_rows<float>(args, TensorName::dq_accum, batch, head, 0), Groups * kThreads);
  }
  zero_rows(key_rows<Element>(args, TensorName::dk, batch, kv_head, 0), Groups * kThreads);
  zero_rows(key_rows<Element>(args, TensorName::dv, batch, kv_head, 0), Groups * kThreads);

  int visited = 0;
  for (int n_block = 0; n_block < num_n_blocks(args.band, kTile); ++n_block) {
    const TileRange range = q_tiles(args.band, kTile, n_block);
    const int first_key = n_block * BlockN + group_key;
    __syncthreads();  // the last step has read K and V, and what it wrote can be read
    if (!range.empty()) {
      load_tile<kKeys>(k_tile, key_rows<const Element>(args, TensorName::k, batch, kv_head, first_key));
      load_tile<kKeys>(v_tile, key_rows<const Element>(args, TensorName::v, batch, kv_head, first_key));
    }
    const int steps = range.count() * args.group_size();
    const auto head_of = [&](int step) { return first_head + step / range.count(); };
    const auto m_block_of = [&](int step) {
      return scan_tile(args.scan, range, n_block, step % range.count());
    };
    const auto rows_of = [&](TensorName name, int step) {
      return query_rows<const Element>(args, name, batch, head_of(step),
                                       m_block_of(step) * BlockM + group_query);
    };
    const auto load_statistics = [&](int step) {
      if (group != 0) return;
      const int head = head_of(step), query = m_block_of(step) * BlockM;
      load_statistic<BlockM>(row_max_of,
                             statistic_rows<const float>(args, TensorName::row_max, batch, head, query));
      load_statistic<BlockM>(row_sum_of,
                             statistic_rows<const float>(args, TensorName::row_sum, batch, head, query));
    };
    TileAhead<kQueries, Dim, Element> q_ahead, dout_ahead;
    const auto fetch = [&](int step) {
      if (!kRoomAhead || step >= steps) return;
      q_ahead.fetch(rows_of(TensorName::q, step));
      dout_ahead.fetch(rows_of(TensorName::dout, step));
    };
    const auto land = [&](TensorName name, auto& ahead, const SharedTile<Dim>& tile, int step) {
      if (step >= steps) return;
      if constexpr (kRoomAhead) {
        ahead.land(tile, rows_of(name, step));
      } else {
        load_tile<kQueries>(tile, rows_of(name, step));
      }
    };
    const auto land_q = [&](int step) {
      land(TensorName::q, q_ahead, q_tile, step);
      if (step < steps) load_statistics(step);
    };
    fetch(0);
    land_q(0);
    land(TensorName::dout, dout_ahead, dout_tile, 0);
    QuadTile<kKeys, Dim> dk{}, dv{};
    for (int step = 0; step < steps; ++step) {
      const int head = head_of(step), m_block = m_block_of(step);
      const int first_query = m_block * BlockM;
      const ScorePlace<kKeys, BlockM, true> place(lane, first_query, first_key);
      const TileLogEntry entry(args.log, visited++, batch, head, m_block, n_block);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      compute_delta<kQueries>(
          lane, rows_of(TensorName::out, step), dout_tile,
          shared.delta + (planted(GpuBug::flash1_delta_of_other_group) ? 0 : group_query));
      fetch(step + 1);
      DotTile<kKeys, BlockM> probs, dscores;
      multiply_nt(lane, k_tile, shared.q, probs);
      multiply_nt(lane, v_tile, shared.dout, dscores);
      __syncthreads();  // delta is whole
      gradient_tile<true, Element>(place, first_query, range.full(m_block), args, batch * args.heads + head,
                                   ProbsFromMaxAndSum{row_max_of, row_sum_of}, shared.delta, entry, probs,
                                   dscores);
      put(lane, score_tile, probs);
      __syncwarp();
      multiply_nn<kKeys, BlockM, Dim>(lane, score_tile, shared.dout, dv);
      __syncwarp();
      put(lane, score_tile, dscores);
      __syncthreads();  // dS is whole, and dO has been read by all
      land(TensorName::dout, dout_ahead, dout_tile, step + 1);
      const auto dq_rows =
          query_rows<float>(args, TensorName::dq_accum, batch, head, first_query + group_query);
      DqPart dq_before;
      if constexpr (kRoomAhead) dq_before = load_rows<DqPart>(lane, dq_rows);  // the products hide the trip
      multiply_nn<kKeys, BlockM, Dim>(lane, score_tile, shared.q, dk);
      DqPart dq{};
      multiply_tn<kQueries, BlockN>(lane, shared.scores, shared.k, dq, group_query);
      store_sum(lane, dq_rows, kRoomAhead ? &dq_before : nullptr, dq);
      if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(dk) + sum_of(dv));
      __syncthreads();  // Q, dS and the statistics have been read by all
      land_q(step + 1);
    }
    store_gradient(lane, key_rows<Element>(args, TensorName::dk, batch, kv_head, first_key),
                   args.softmax_scale, dk);
    store_gradient(lane, key_rows<Element>(args, TensorName::dv, batch, kv_head, first_key), 1.0f, dv);
  }
}

}  // namespace tilescope::simt
