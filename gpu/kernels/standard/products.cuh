// SPDX-License-Identifier: Apache-2.0
// The passes of gpu:standard that multiply: FlashAttention's Algorithm 0, lines 1 and 3, and Algorithm 3,
// lines 1, 2, 4 and 5. Each reads its operands from slow memory and writes its product there; masked tiles
// are computed like all others, as library matrix products would be.
#pragma once

#include "gpu/kernels/standard/rows.cuh"
#include "gpu/kernels/standard/standard.hpp"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/backward.cuh"

namespace tilescope::cuda_cores {

/// The tiles of an unmasked matrix: standard attention visits all of them.
__device__ inline VisibleBand dense(VisibleBand band) {
  band.left = band.right = kUnbounded;
  return band;
}

/// Calls step(row, col, quad) for this thread's 16-byte chunks of a tile in shared memory.
template <int Rows, int Cols, typename Step>
__device__ inline void for_each_quad(SharedTile<Cols> tile, Step&& step) {
  for (int i = static_cast<int>(threadIdx.x); i < Rows * Cols / 4; i += kThreads) {
    const int row = i / (Cols / 4), chunk = i % (Cols / 4);
    step(row, 4 * chunk, *reinterpret_cast<float4*>(tile.chunk(row, chunk)));
  }
}

/// Sum of this thread's visible entries of a tile in shared memory, for the tile log.
template <int Rows, int Cols>
__device__ inline double visible_sum(const VisibleBand& band, int first_query, int first_key,
                                     SharedTile<Cols> tile) {
  double sum = 0.0;
  for_each_quad<Rows>(tile, [&](int row, int col, const float4& quad) {
    const float each[4] = {quad.x, quad.y, quad.z, quad.w};
    for (int x = 0; x < 4; ++x) {
      const int query = first_query + row, key = first_key + col + x;
      if (query < band.seqlen_q && key < band.seqlen_k && band.visible(query, key)) {
        sum += static_cast<double>(each[x]);
      }
    }
  });
  return sum;
}

/// S = factor * Q K^T, or dP = dO V^T: the left operand's tile stays, the right one's stream past.
struct RowsTimesRows {
  TensorName left, right, product;
  float factor;
};
template <typename Element, int Dim, int BlockM, int BlockN>
__global__ void __launch_bounds__(kThreads, Standard::kProductCtasPerSm)
    rows_times_rows(const __grid_constant__ KernelArguments args, RowsTimesRows names) {
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * BlockM;
  const VisibleBand& visible = batch_band<true>(args, batch);
  const TileRange range = kv_tiles(dense(args.band), {BlockM, BlockN}, m_block);
  const Lane lane = Lane::in_group();
  constexpr Standard::ProductLayout kLayout{{BlockM, BlockN}, Dim};
  const SharedTile<Dim> left{shared_memory() + kLayout.queries()}, right{shared_memory() + kLayout.keys()};
  const SharedTile<BlockN> product_tile{shared_memory() + kLayout.matrix()};
  load_tile<BlockM>(left, query_rows<const Element>(args, names.left, batch, head, first_query));
  const auto right_rows = [&](int step) {
    const int first_key = scan_tile(args.scan, range, work.wave_parity, step) * BlockN;
    return key_rows<const Element>(args, visible, names.right, batch, work.kv_head, first_key);
  };
  TileAhead<BlockN, Dim, Element> right_ahead;
  right_ahead.fetch(right_rows(0));
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step);
    const int first_key = n_block * BlockN;
    right_ahead.land(right, right_rows(step));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (step + 1 < range.count()) right_ahead.fetch(right_rows(step + 1));
    SquarestTile<BlockM, BlockN> product;
    // In order: S is rounded to the element type, and what rounds up in one order rounds down in another.
    multiply_nt<0, true>(lane, left, right, product);
    put(lane, product_tile, product);
    __syncthreads();
    const TileLogEntry entry(args.log, step, batch, head, m_block, n_block);
    if (entry.open()) {
      const bool scores = names.product == TensorName::scores;
      entry.add(scores ? &DeviceTileState::scores : &DeviceTileState::dprobs,
                visible_sum<BlockM>(visible, first_query, first_key, product_tile));
    }
    const auto target = matrix_rows<Element>(args, names.product, batch, head, first_query, first_key);
    for_each_quad<BlockM>(product_tile, [&](int row, int col, const float4& x) {
      store_quad(target, row, col,
                 {x.x * names.factor, x.y * names.factor, x.z * names.factor, x.w * names.factor});
    });
  }
}

/// O = P V or dQ = scale * dS K by q tile; dV = P^T dO or dK = scale * dS^T Q by kv tile, over the query
/// heads of its group. Dropout strikes P on its way in. Source: FlashAttention, Algorithm 2, line 14.
struct MatrixTimesRows {
  TensorName matrix, rows, product;
  float factor;
};
template <typename Element, int Dim, int BlockM, int BlockN, Axis axis>
__global__ void __launch_bounds__(kThreads, Standard::kProductCtasPerSm)
    matrix_times_rows(const __grid_constant__ KernelArguments args, MatrixTimesRows names) {
  constexpr bool kByQuery = axis == Axis::q;
  constexpr int kRows = kByQuery ? BlockM : BlockN, kDepth = kByQuery ? BlockN : BlockM;
  const CtaWork work = kByQuery ? query_work(args) : kv_work(args);
  const int batch = work.batch, first_head = work.first_head, kv_head = work.kv_head;
  const int block = work.first_block;
  const VisibleBand band = dense(args.band);
  const VisibleBand& visible = batch_band<true>(args, batch);
  const TileRange range =
      kByQuery ? kv_tiles(band, {BlockM, BlockN}, block) : q_tiles(band, {BlockM, BlockN}, block);
  const Lane lane = Lane::in_group();
  constexpr Standard::ProductLayout kLayout{{BlockM, BlockN}, Dim};
  const SharedTile<BlockN> matrix{shared_memory() + kLayout.matrix()};
  const SharedTile<Dim> rows{shared_memory() + (kByQuery ? kLayout.keys() : kLayout.queries())};
  SquarestTile<kRows, Dim> product{};
  const int steps = range.count() * (work.end_head - first_head);
  struct Place {
    int head, m_block, n_block;
    __device__ int first_query() const { return m_block * BlockM; }
    __device__ int first_key() const { return n_block * BlockN; }
  };
  const auto place_of = [&](int step) -> Place {
    const int inner = scan_tile(args.scan, range, work.wave_parity, step % range.count());
    const int in_group = step / range.count();
    return {first_head + in_group, kByQuery ? block : inner, kByQuery ? inner : block};
  };
  const auto matrix_of = [&](const Place& at) {
    return matrix_rows<const Element>(args, names.matrix, batch, at.head, at.first_query(), at.first_key());
  };
  const auto rows_of = [&](const Place& at) {
    if constexpr (kByQuery) {
      return key_rows<const Element>(args, visible, names.rows, batch, kv_head, at.first_key());
    }
    return query_rows<const Element>(args, names.rows, batch, at.head, at.first_query());
  };
  TileAhead<BlockM, BlockN, Element> matrix_ahead;
  TileAhead<kDepth, Dim, Element> rows_ahead;
  matrix_ahead.fetch(matrix_of(place_of(0)));
  rows_ahead.fetch(rows_of(place_of(0)));
  for (int step = 0; step < steps; ++step) {
    note_step(args, step);
    const Place at = place_of(step);
    const auto [head, m_block, n_block] = at;
    const int first_query = at.first_query(), first_key = at.first_key();
    __syncthreads();  // the last step has read both tiles
    matrix_ahead.land(matrix, matrix_of(at));
    rows_ahead.land(rows, rows_of(at));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (step + 1 < steps) {
      matrix_ahead.fetch(matrix_of(place_of(step + 1)));
      rows_ahead.fetch(rows_of(place_of(step + 1)));
    }
    if (args.dropout.active() && names.matrix == TensorName::probs) {
      for_each_quad<BlockM>(matrix, [&](int row, int col, float4& quad) {
        const Philox4 bits =
            args.dropout.bits(batch * args.heads + head, first_query + row, (first_key + col) / 4);
        const auto dropped = [&](std::uint32_t random, float p) {
          return random >= args.dropout.threshold ? rounded<Element>(p * args.dropout.keep_scale) : 0.0f;
        };
        quad = {dropped(bits.x[0], quad.x), dropped(bits.x[1], quad.y), dropped(bits.x[2], quad.z),
                dropped(bits.x[3], quad.w)};
      });
      __syncthreads();
    }
    if constexpr (kByQuery) {
      multiply_nn(lane, matrix, rows, product);
    } else {
      multiply_tn<kDepth>(lane, matrix, rows, product);
    }
    const TileLogEntry entry(args.log, step, batch, head, m_block, n_block);
    if (entry.open()) {
      const bool probs = names.matrix == TensorName::probs;
      entry.add(probs ? &DeviceTileState::probs : &DeviceTileState::dscores,
                visible_sum<BlockM>(visible, first_query, first_key, matrix));
      entry.add(&DeviceTileState::accum, sum_of(product));
    }
  }
  if constexpr (kByQuery) {
    store_gradient(lane, query_rows<Element>(args, names.product, batch, first_head, block * BlockM),
                   names.factor, product);
  } else {
    store_gradient(lane, key_rows<Element>(args, names.product, batch, kv_head, block * BlockN), names.factor,
                   product);
  }
}

}  // namespace tilescope::cuda_cores
