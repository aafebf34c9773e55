// SPDX-License-Identifier: Apache-2.0
// The backward pass of gpu:flash1: FlashAttention, Algorithm 4. One CTA works through a whole key/value head:
// dK and dV of a kv tile stay in registers, dQ makes a trip to slow memory at every step. It computes S
// again, five products where gpu:standard computes four: what that saves is traffic, which CUDA cores seldom
// wait for.
#pragma once

#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash1/rows_before.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/backward.cuh"

namespace tilescope::cuda_cores {

/// Line 21, dQ += dS K in slow memory.
template <typename Tile>
__device__ inline void add_to_rows(Lane lane, const GlobalRows<float>& target, const RowsBefore<Tile>& before,
                                   const Tile& product) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      const float4 old = before.x[i][q], added = product.quad(i, q);
      store_quad(target, Tile::row(lane, i), Tile::col(lane, 4 * q),
                 {old.x + added.x, old.y + added.y, old.z + added.z, old.w + added.w});
    }
  }
}

/// Has the L2 fetch rows from DRAM.
template <int Rows, int Cols>
__device__ inline void prefetch_rows(const GlobalRows<float>& rows) {
  constexpr int kLine = 32;  // floats
  for (int i = static_cast<int>(threadIdx.x); i < Rows * (Cols / kLine); i += kBackwardGroups * kThreads) {
    const int row = i / (Cols / kLine), col = i % (Cols / kLine) * kLine;
    if (row < rows.rows && col < rows.cols) asm volatile("prefetch.global.L2 [%0];" ::"l"(rows.at(row, col)));
  }
}

/// One CTA: a whole key/value head. `AllFeatures`: dropout, a negative scale and the tile log.
template <typename Element, int Dim, int BlockM, int BlockN, bool AllFeatures>
__global__ void __launch_bounds__(kBackwardGroups* kThreads, kBackwardCtasPerSm)
    flash1_backward(const __grid_constant__ KernelArguments args) {
  using Tiles = BackwardTiles<Dim, BlockM, BlockN>;
  constexpr TileShape kTile{BlockM, BlockN};
  constexpr int kAllThreads = kBackwardGroups * kThreads;
  const CtaWork work = kv_work(args, num_n_blocks(args.band, kTile));
  const int batch = work.batch, kv_head = work.kv_head;
  const Role role = role_of_thread();
  const bool first = role == Role::probs;
  const BackwardShared<Dim, BlockM, BlockN> shared(shared_memory());
  float *const row_max_of = shared.lse, *const row_sum_of = shared.row_sum;
  // Line 5.
  for (int head = work.first_head; head < work.end_head; ++head) {
    zero_rows(query_rows<float>(args, TensorName::dq_accum, batch, head, 0), kAllThreads);
  }
  zero_rows(key_rows<Element>(args, TensorName::dk, batch, kv_head, 0), kAllThreads);
  zero_rows(key_rows<Element>(args, TensorName::dv, batch, kv_head, 0), kAllThreads);

  const auto band = [&]() -> decltype(auto) { return batch_band<AllFeatures>(args, batch); };
  int visited = 0;
  for (int n_block = work.first_block; n_block < work.end_block; ++n_block) {
    const TileRange range = q_tiles<AllFeatures>(band(), kTile, n_block);
    const int first_key = n_block * BlockN;
    __syncthreads();  // the last step has read K and V, and what it wrote can be read
    if (!range.empty()) {
      load_tile<BlockN>(either(first, shared.k, shared.v),
                        key_rows<const Element>(args, band(), first ? TensorName::k : TensorName::v, batch,
                                                kv_head, first_key));
    }
    const int steps = range.count() * args.group_size();
    QueryTiles tiles{range, args.scan, n_block, work.first_head};
    const auto rows_of = [&](TensorName name) {
      return query_rows<const Element>(args, name, batch, tiles.head, tiles.m_block() * BlockM);
    };
    // A group loads what its last product has read: the first one dO, the second one Q.
    const TensorName streamed = first ? TensorName::dout : TensorName::q;
    TileAhead<BlockM, Dim, Element> ahead;
    DeltaRows<BlockM, Dim, Element> delta_rows;
    const auto land = [&] {
      ahead.land(either(first, shared.dout, shared.q), rows_of(streamed));
      const TensorName name = first ? TensorName::row_max : TensorName::row_sum;
      load_row_values<BlockM>(
          first ? row_max_of : row_sum_of,
          row_values<const float>(args, name, batch, tiles.head, tiles.m_block() * BlockM));
    };
    if (steps > 0) {
      ahead.fetch(rows_of(streamed));
      land();
      delta_rows.fetch(Lane::in_cta(), rows_of(TensorName::out));
    }
    typename Tiles::KvGradient gradient{};  // dV, dK
    for (int step = 0; step < steps; ++step) {
      note_step(args, visited);
      const int head = tiles.head, m_block = tiles.m_block();
      const int first_query = m_block * BlockM;
      const TileLogEntry entry(AllFeatures ? args.log : DeviceTileLog{}, visited++, batch, head, m_block,
                               n_block);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
      delta_rows.put(Lane::in_cta(), rows_of(TensorName::out), shared.dout, shared.delta);
      typename Tiles::Scores scores;
      multiply_scores(role, shared, scores);
      exchange_scores<AllFeatures, Element>(role, shared, first_query, first_key, range.full(m_block), args,
                                            band(), batch * args.heads + head,
                                            ProbsFromMaxAndSum{row_max_of, row_sum_of}, entry, scores);
      tiles.advance();
      const bool more = step + 1 < steps;
      if (more) ahead.fetch(rows_of(streamed));
      if (more && Dim == 64) {  // larger ones have no registers left for its addresses
        prefetch_rows<BlockM, Dim>(
            query_rows<float>(args, TensorName::dq_accum, batch, tiles.head, tiles.m_block() * BlockM));
      }
      multiply_gradient(role, shared, gradient);
      if constexpr (AllFeatures) {
        if (entry.open()) entry.add(&DeviceTileState::accum, sum_of(gradient));
      }
      const auto dq_rows = query_rows<float>(args, TensorName::dq_accum, batch, head, first_query);
      const RowsBefore<typename Tiles::QGradient> dq_before(Lane::in_cta(), dq_rows);
      __syncthreads();  // dS is whole; Q, dO and the rows' m and l have been read by all
      if (more) land();
      // After dq_before, which would wait for it too.
      if (more) delta_rows.fetch(Lane::in_cta(), rows_of(TensorName::out));
      typename Tiles::QGradient dq{};
      multiply_nn(Lane::in_cta(), shared.dscores, shared.k, dq);
      add_to_rows(Lane::in_cta(), dq_rows, dq_before, dq);
    }
    store_gradient(
        Lane::in_group(),
        key_rows<Element>(args, first ? TensorName::dv : TensorName::dk, batch, kv_head, first_key),
        first ? 1.0f : args.softmax_scale, gradient);
  }
}

}  // namespace tilescope::cuda_cores
