// SPDX-License-Identifier: Apache-2.0
// The passes of gpu:standard-mma that multiply: FlashAttention's Algorithm 0, lines 1 and 3, and Algorithm 3,
// lines 1, 2, 4 and 5. Against gpu:standard: tensor cores multiply, and cp.async brings the next tile
// meanwhile. Against gpu:flash2-mma: S and P cross the SM's boundary. Masked tiles are computed like all
// others, as library matrix products would be.
#pragma once

#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/kernels/standard_mma/standard_mma.hpp"
#include "gpu/primitives/common/step_clock.cuh"

namespace tilescope::sm80 {

template <int kHeadDim>
inline constexpr MmaForwardShape kProductShape = StandardMma::shape(kHeadDim);
template <int kHeadDim>
inline constexpr int kProductThreads = kProductShape<kHeadDim>.threads();
template <int kHeadDim>
inline constexpr int kProductCtas = kProductShape<kHeadDim>.ctas_per_sm;

/// The tiles of an unmasked matrix: standard attention visits all of them.
__device__ inline VisibleBand all_visible(VisibleBand band) {
  band.left = band.right = kUnbounded;
  return band;
}

/// An N x N matrix of a head, from one of its columns on, with the zeros that fill the last sector of a row.
__device__ inline GlobalRows matrix_columns(const KernelArguments& args, TensorName name, int batch, int head,
                                            int first_key) {
  const DeviceTensor& tensor = args[name];
  return {tensor.head<std::uint16_t>(batch, head) + first_key, tensor.row_stride, args.band.seqlen_q,
          static_cast<int>(tensor.row_stride) - first_key};
}

/// This thread's part of the sum of a matrix's visible entries in shared memory, for the tile log.
template <ElementType kType, int kRows, int kThreads, int kCols>
__device__ inline double visible_sum(const VisibleBand& band, int first_query, int first_key,
                                     SharedTile<kCols> tile, int thread) {
  constexpr int kChunks = SharedTile<kCols>::kChunks;
  double sum = 0.0;
  for (int i = thread; i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const uint4 words = load_shared(tile.chunk_address(row, chunk));
    const std::uint32_t each[4] = {words.x, words.y, words.z, words.w};
    for (int e = 0; e < 8; ++e) {
      const float2 pair = unpack<kType>(each[e / 2]);
      if (visible(band, first_query + row, first_key + 8 * chunk + e)) {
        sum += static_cast<double>(e % 2 == 0 ? pair.x : pair.y);
      }
    }
  }
  return sum;
}

/// S = factor * Q K^T, or dP = dO V^T: the left operand's tile stays, the right one's stream past.
struct RowsTimesRows {
  TensorName left, right, product;
  float factor;
};

/// CTA: one q tile of one head. Grid: args.grid. Dynamic shared memory: StandardMma::Layout.
template <ElementType kType, int kHeadDim, Features kFeatures>
__global__ __launch_bounds__(kProductThreads<kHeadDim>, kProductCtas<kHeadDim>) void mma_rows_times_rows(
    const __grid_constant__ KernelArguments args, RowsTimesRows names) {
  constexpr MmaForwardShape kShape = kProductShape<kHeadDim>;
  constexpr TileShape kTile = kShape.tile;
  constexpr StandardMma::Layout kLayout = StandardMma::layout(kHeadDim);
  constexpr int kThreads = kShape.threads(), kMBlocks = kShape.warp_rows() / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const SharedTile<kHeadDim> left{base + kLayout.left()};
  const SharedTile<kTile.block_n> product_tile{base + kLayout.product()};
  const auto right = [&](int step) { return SharedTile<kHeadDim>{base + kLayout.right(step % 2)}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const CtaWork work = query_work<int>(args);
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * kTile.block_m, warp_query = first_query + warp * kShape.warp_rows();
  const TileRange range = kv_tiles(all_visible(args.band), kTile, m_block);
  const auto n_block_of = [&](int step) { return scan_tile(args.scan, range, work.wave_parity, step); };
  const GlobalRows right_rows = head_rows(args, names.right, batch, work.kv_head, args.band.seqlen_k);
  const auto load_right = [&](int step) {
    if (step < range.count()) {
      load_tile<RowAccess::chunks, kTile.block_n, kThreads>(right(step), right_rows,
                                                            n_block_of(step) * kTile.block_n, thread);
    }
    commit_copies();
  };
  load_tile<RowAccess::chunks, kTile.block_m, kThreads>(
      left, head_rows(args, names.left, batch, head, args.band.seqlen_q), first_query, thread);
  load_right(0);
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = n_block_of(step), first_key = n_block * kTile.block_n;
    wait_for_copies<0>();
    __syncthreads();  // the tile has arrived, and the product before has left
    load_right(step + 1);
    WarpAccumulator<kMBlocks, kTile.block_n / 16> product;
    product.clear();
    multiply_abt<kType, kHeadDim>(product, LdmatrixByColumns<kHeadDim>(left, lane).at(warp * kMBlocks, 0),
                                  LdmatrixByRows<kHeadDim>(right(step), lane));
    const TileLogEntry entry(tile_log<kFeatures>(args), step, batch, head, m_block, n_block);
    if (entry.open()) {
      entry.add(
          names.product == TensorName::scores ? &DeviceTileState::scores : &DeviceTileState::dprobs,
          visible_sum<false>(product, args.band, warp_query, first_key, lane, [](float x) { return x; }));
    }
    product.scale(names.factor);
    stage_output<kType>(product_tile, product, warp * kMBlocks, 0, lane);
    __syncthreads();
    store_tile<RowAccess::chunks, kTile.block_m, kThreads>(
        product_tile, matrix_columns(args, names.product, batch, head, first_key), first_query, thread);
  }
}

/// O = P V or dQ = scale * dS K by q tile; dV = P^T dO or dK = scale * dS^T Q by kv tile, over the query
/// heads of its group. Source: FlashAttention, Algorithm 2, line 14.
struct MatrixTimesRows {
  TensorName matrix, rows, product;
  float factor;
};

/// The tile of the matrix that a step of MatrixTimesRows takes.
struct MatrixStep {
  int head, m_block, n_block;
};

/// CTA: one q or kv tile of one head. Grid: args.grid. Dynamic shared memory: StandardMma::Layout.
template <ElementType kType, int kHeadDim, Features kFeatures, Axis kAxis>
__global__ __launch_bounds__(kProductThreads<kHeadDim>, kProductCtas<kHeadDim>) void mma_matrix_times_rows(
    const __grid_constant__ KernelArguments args, MatrixTimesRows names) {
  constexpr bool kByQuery = kAxis == Axis::q;
  constexpr MmaForwardShape kShape = kProductShape<kHeadDim>;
  constexpr TileShape kTile = kShape.tile;
  constexpr StandardMma::Layout kLayout = StandardMma::layout(kHeadDim);
  constexpr int kThreads = kShape.threads();
  constexpr int kRows = kByQuery ? kTile.block_m : kTile.block_n;
  constexpr int kDepth = kByQuery ? kTile.block_n : kTile.block_m;
  constexpr int kMBlocks = kRows / kShape.warps / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const CtaWork work = kByQuery ? query_work<int>(args) : kv_work<int>(args);
  const int batch = work.batch, block = work.first_block;
  const VisibleBand band = all_visible(args.band);
  const TileRange range = kByQuery ? kv_tiles(band, kTile, block) : q_tiles(band, kTile, block);
  const int steps = range.count() * (work.end_head - work.first_head);
  const auto matrix = [&](int step) { return SharedTile<kTile.block_n>{base + kLayout.matrix(step % 2)}; };
  const auto rows = [&](int step) { return SharedTile<kHeadDim>{base + kLayout.rows(step % 2)}; };
  const auto step_of = [&](int step) -> MatrixStep {
    const int inner = scan_tile(args.scan, range, work.wave_parity, step % range.count());
    return {work.first_head + step / range.count(), kByQuery ? block : inner, kByQuery ? inner : block};
  };
  const auto rows_of = [&](TensorName name, int query_head, bool of_keys) {
    return of_keys ? head_rows(args, name, batch, work.kv_head, args.band.seqlen_k)
                   : head_rows(args, name, batch, query_head, args.band.seqlen_q);
  };
  const auto load = [&](int step) {
    if (step < steps) {
      const MatrixStep at = step_of(step);
      load_tile<RowAccess::chunks, kTile.block_m, kThreads>(
          matrix(step), matrix_columns(args, names.matrix, batch, at.head, at.n_block * kTile.block_n),
          at.m_block * kTile.block_m, thread);
      load_tile<RowAccess::chunks, kDepth, kThreads>(rows(step), rows_of(names.rows, at.head, kByQuery),
                                                     (kByQuery ? at.n_block : at.m_block) * kDepth, thread);
    }
    commit_copies();
  };
  WarpAccumulator<kMBlocks, kHeadDim / 16> product;
  product.clear();
  load(0);
  for (int step = 0; step < steps; ++step) {
    note_step(args, step);
    wait_for_copies<0>();
    __syncthreads();  // both tiles have arrived, and those of the step before are done with
    load(step + 1);
    const LdmatrixByColumns<kTile.block_n> by_columns(matrix(step), lane);
    const LdmatrixByRows<kTile.block_n> by_rows(matrix(step), lane);
    const LdmatrixByColumns<kHeadDim> right(rows(step), lane);
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      Fragment left[kMBlocks];
#pragma unroll
      for (int i = 0; i < kMBlocks; ++i) {
        left[i] = kByQuery ? by_columns.load(warp * kMBlocks + i, k)
                           : by_rows.load_transposed(k, warp * kMBlocks + i);
      }
      step_ab<kType>(product, left, right, k);
    }
    const MatrixStep at = step_of(step);
    const TileLogEntry entry(tile_log<kFeatures>(args), step, batch, at.head, at.m_block, at.n_block);
    if (entry.open()) {
      const bool probs = names.matrix == TensorName::probs;
      entry.add(probs ? &DeviceTileState::probs : &DeviceTileState::dscores,
                visible_sum<kType, kTile.block_m, kThreads>(
                    args.band, at.m_block * kTile.block_m, at.n_block * kTile.block_n, matrix(step), thread));
      entry.add(&DeviceTileState::accum, inside_sum(product, kRows, kHeadDim, lane));
    }
  }
  product.scale(names.factor);
  __syncthreads();
  const SharedTile<kHeadDim> staged{base};
  stage_output<kType>(staged, product, warp * kMBlocks, 0, lane);
  __syncthreads();
  store_tile<RowAccess::chunks, kRows, kThreads>(staged, rows_of(names.product, work.first_head, !kByQuery),
                                                 block * kRows, thread);
}

}  // namespace tilescope::sm80
