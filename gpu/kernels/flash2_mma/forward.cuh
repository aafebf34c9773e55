// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, forward. Against gpu:flash2-simt: both products run on the tensor cores (mma.sync
// m16n8k16), fed by ldmatrix from swizzled tiles; K and V arrive by cp.async, one kv tile ahead, so that one
// barrier a tile is left; P turns from an accumulator into an operand without leaving the registers. That
// should win the ratio of tensor to fp32 peak, less what the softmax cannot hide: about 6 to 8 times.
// Tried on an H200 and left out: the next tile's scores computed beside this tile's softmax (its registers
// force half the keys a tile: 312 instead of 358 TFLOP/s at head_dim 128); Q kept in registers (likewise: 329
// instead of 339 at 64); the CTAs of an SM started half a tile apart (no difference).
// Source: FlashAttention-2, arXiv:2307.08691, Algorithm 1.
#pragma once

#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm80/paged_tile.cuh"

namespace tilescope::sm80 {

/// Running maximum (of unscaled scores) and sum of a lane's rows: row lane / 4 + 8 half of row block i. Sums
/// are the lane's own until the end; maxima are the row's.
template <int kMBlocks>
struct SoftmaxState {
  float max[kMBlocks][2];
  float sum[kMBlocks][2];
};

/// Rows begin with the term of a learned sink, which a lane of the four that share them has, not with none.
template <int kMBlocks>
__device__ __forceinline__ void begin_with_sink(SoftmaxState<kMBlocks>& rows, const KernelArguments& args,
                                                float sink, int lane) {
  if (!args.score_mods.sinks || sink == kMinusInfinity) return;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.max[i][half] = sink * args.score_mods.per_scale;
      rows.sum[i][half] = lane % 4 == 0 ? 1.0f : 0.0f;
    }
  }
}

/// One tile of the online softmax: raises the maxima, rescales sums and O, and turns the scores into
/// un-normalised probabilities.
/// @tparam kNormalised  O and P are divided by the row's sum so far, as in FlashAttention's Algorithm 1: sums
/// are the row's, then
template <bool kNormalised = false, int kMBlocks, int kNBlocks, int kDBlocks>
__device__ __forceinline__ void softmax_step(WarpAccumulator<kMBlocks, kNBlocks>& s,
                                             SoftmaxState<kMBlocks>& rows,
                                             WarpAccumulator<kMBlocks, kDBlocks>& out, float scale) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
    [[maybe_unused]] float normaliser[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float old_max = rows.max[i][half];
      const float new_max = fmaxf(old_max, row_max_of_quad(half_row_max(s.tile[i], half)));
      rows.max[i][half] = new_max;
      const float shift = exponent_shift(new_max, scale);
      const float rescale = rescale_factor(old_max, scale, shift);
      const float sum = exponentiate_half_row(s.tile[i], half, scale, shift);
      if constexpr (kNormalised) {
        const float before = rows.sum[i][half] * rescale, total = before + row_sum_of_quad(sum);
        normaliser[half] = total == 0.0f ? 0.0f : __fdividef(1.0f, total);
        rows.sum[i][half] = total;
        scale_half_row(out.tile[i], half, before * normaliser[half]);
      } else {
        rows.sum[i][half] = fmaf(rows.sum[i][half], rescale, sum);
        scale_half_row(out.tile[i], half, rescale);
      }
    }
    if constexpr (kNormalised) {
#pragma unroll
      for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s.tile[i][j].x[e] *= normaliser[e / 2];
      }
    }
  }
}

/// Adds a warp's maxima, sums and O to the tile log. `rows_inside` and `cols_inside` count from its corner.
template <int kMBlocks, int kDBlocks>
__device__ __forceinline__ void log_rows(const TileLogEntry& entry, const SoftmaxState<kMBlocks>& rows,
                                         const WarpAccumulator<kMBlocks, kDBlocks>& out, int rows_inside,
                                         int cols_inside, int lane) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool seen = rows.max[i][half] != kMinusInfinity;
      if (!seen || 16 * i + 8 * half + (lane >> 2) >= rows_inside) continue;
      if (lane % 4 == 0) entry.add(&DeviceTileState::row_max, static_cast<double>(rows.max[i][half]));
      entry.add(&DeviceTileState::row_sum, static_cast<double>(rows.sum[i][half]));
    }
  }
  entry.add(&DeviceTileState::accum, inside_sum(out, rows_inside, cols_inside, lane));
}

/// The shape that the registry row states.
template <int kHeadDim, Features kFeatures>
struct DefaultForward {
  static constexpr MmaForwardShape shape = kFeatures == Features::values
                                               ? mma_values_forward_shape()
                                               : mma_forward_shape(kHeadDim, has_dropout(kFeatures));
};

/// In instances that read none.
struct NoPages {
  __device__ void copy(int, int, int) const {}
};

/// The pages that a CTA of such an instance reads.
template <Features kFeatures, int kKeys>
__device__ __forceinline__ auto pages_ahead(const KernelArguments& args, int batch) {
  if constexpr (is_paged(kFeatures)) {
    using Pages = PagesAhead<kKeys, 1>;
    __shared__ __align__(16) int slots[Pages::kSlots * Pages::kMost];
    return Pages(slots, args.kv_pages, batch);
  } else {
    return NoPages{};
  }
}

/// CTA: one q tile of one head. Grid: args.grid.
template <ElementType kType, int kHeadDim, Features kFeatures,
          typename Choice = DefaultForward<kHeadDim, kFeatures>>
__global__ __launch_bounds__(Choice::shape.threads(), Choice::shape.ctas_per_sm) void flash2_mma_forward(
    const __grid_constant__ ArgumentsOf<kFeatures> args) {
  constexpr MmaForwardShape kShape = Choice::shape;
  constexpr bool kDropout = has_dropout(kFeatures), kNormalised = requires {
    typename Choice::NormalisesEachStep;
  };
  constexpr RowAccess kAccess = row_access(kFeatures);
  constexpr TileShape kTile = kShape.tile;
  constexpr int kThreads = kShape.threads();
  constexpr int kMBlocks = kShape.warp_rows() / 16;
  constexpr int kNBlocks = kTile.block_n / 16;
  constexpr int kValueDim = kShape.values(kHeadDim);
  constexpr int kDBlocks = kValueDim / 16;
  constexpr MmaQueryLayout kLayout = layout_on(kShape, kHeadDim, kComputeCapabilityMajor);
  constexpr int kStages = kLayout.stages;
  // Tiles whose copies are under way while one is computed. Each is a group of copies, empty beyond the last
  // tile, so that waiting for all but the newest groups waits for this tile.
  constexpr int kAhead = kStages > 1 ? kStages - 1 : 1;
  static_assert(kLayout.end() <= max_shared_bytes(kComputeCapabilityMajor));
  using Tile = SharedTile<kHeadDim>;
  using ValueTile = SharedTile<kValueDim>;

  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const Tile q_tile{base + kLayout.q()};
  const auto k_tile = [&](int stage) { return Tile{base + kLayout.k(stage)}; };
  const auto v_tile = [&](int stage) { return ValueTile{base + kLayout.v(stage)}; };

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const CtaWork work = query_work<int>(args);
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * kTile.block_m;
  const auto band = [&]() -> decltype(auto) { return batch_band<knows_padding(kFeatures)>(args, batch); };
  const auto walk = walk_of<kFeatures>(
      args, work, [&] { return kv_tiles(band(), kTile, m_block); }, true);

  const FinerTiles<kFeatures> finer(args, kTile);
  const Interval seen = finer.keys_of_tile(band(), kTile, m_block);
  const auto computed =
      finer.template keys_of_rows<kMBlocks>(band(), first_query + warp * kShape.warp_rows());
  const auto k_rows =
      streamed_rows<kFeatures>(head_rows(args, TensorName::k, batch, work.kv_head, band().seqlen_k), seen);
  const auto v_rows =
      streamed_rows<kFeatures>(value_rows(args, TensorName::v, batch, work.kv_head, band().seqlen_k), seen);
  [[maybe_unused]] const auto pages = pages_ahead<kFeatures, kTile.block_n>(args, batch);
  [[maybe_unused]] const auto copy_pages = [&](int step) {
    if (step < walk.count()) pages.copy(step, walk.tile(step) * kTile.block_n, thread);
  };
  const auto load_kv = [&](int step) {
    const int first_key = walk.tile(step) * kTile.block_n;
    const int stage = step % kStages;
    if constexpr (is_paged(kFeatures)) {
      load_paged_tiles<kTile.block_n, kThreads>(k_tile(stage), v_tile(stage), args[TensorName::k],
                                                args[TensorName::v], work.kv_head,
                                                pages.of_step(step, first_key), args.kv_pages.log2_size,
                                                first_key, band().seqlen_k, args.head_dim, thread);
      copy_pages(step + 1);
      return commit_copies();
    }
    load_tile<kAccess, kTile.block_n, kThreads>(k_tile(stage), k_rows, first_key, thread);
    load_tile<kAccess, kTile.block_n, kThreads>(v_tile(stage), v_rows, first_key, thread);
    walk.load_entry_after(step);
    commit_copies();
  };

  WarpAccumulator<kMBlocks, kDBlocks> out;
  out.clear();
  SoftmaxState<kMBlocks> rows;
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
    rows.max[i][0] = rows.max[i][1] = kMinusInfinity;
    rows.sum[i][0] = rows.sum[i][1] = 0.0f;
  }
  if constexpr (is_varied(kFeatures)) begin_with_sink(rows, args, walk.shared.sink, lane);
  const float scale = exponent_scale(args);

  const auto q_view = LdmatrixByColumns<kHeadDim>(q_tile, lane).at(warp * kMBlocks, 0);
  if (!walk.empty()) {
    if constexpr (is_paged(kFeatures)) {
      static_assert(kAhead == 1);
      copy_pages(0);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
    }
    load_tile<kAccess, kTile.block_m, kThreads>(
        q_tile, head_rows(args, TensorName::q, batch, head, args.band.seqlen_q), first_query, thread);
    load_kv(0);
    for (int step = 1; step < kAhead; ++step) {
      if (step < walk.count()) {
        load_kv(step);
      } else {
        commit_copies();
      }
    }
  }

#pragma unroll 1
  for (int step = 0; step < walk.count(); ++step) {
    note_step(args, step);
    const int n_block = walk.tile(step);
    const int stage = step % kStages;
    // load: this tile has arrived for every thread, and every warp is past the tile before
    wait_for_copies<kAhead - 1>();
    __syncthreads();
    if (kStages > 1 && step + kAhead < walk.count()) load_kv(step + kAhead);
    if (kAhead > 1 && step + kAhead >= walk.count()) commit_copies();

    // compute: S = Q K^T
    WarpAccumulator<kMBlocks, kNBlocks> s;
    s.clear();
    const int warp_query = first_query + warp * kShape.warp_rows();
    const int first_key = n_block * kTile.block_n;
    const auto full = [&] { return walk.full(step, n_block); };
    const auto blocks = computed.in_tile(first_key);
    on_computed<kFeatures>(full, blocks, [&](const auto& those) {
      multiply_abt<kType, kHeadDim>(s, q_view, LdmatrixByRows<kHeadDim>(k_tile(stage), lane), NoInterleave{},
                                    those);
    });
    const TileLogEntry entry(tile_log<kFeatures>(args), step, batch, head, m_block, n_block);
    if constexpr (is_varied(kFeatures)) {
      const SeenEntries seen = walk.template seen<false, kTile.block_n>(step, first_query, first_key);
      log_scores<false>(entry, args, seen, s, warp_query, first_key, lane);
      modify_and_mask<false>(s, args, walk.slope(head), seen, {warp_query, first_key}, lane);
    } else {
      log_scores<false>(entry, args, band(), s, warp_query, first_key, lane);
      sign_and_mask(s, args, band(), full(), warp_query, first_key, lane);
    }

    softmax_step<kNormalised>(s, rows, out, scale);
    if (kDropout && (!is_varied(kFeatures) || args.dropout.active())) {
#pragma unroll
      for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kNBlocks; ++j) {
          const KeepBits keep = keep_queries_by_keys(args.dropout, work.batch_head, warp_query + 16 * i,
                                                     first_key + 8 * j, lane);
#pragma unroll
          for (int e = 0; e < 4; ++e) s.tile[i][j].x[e] *= keep >> e & 1 ? args.dropout.keep_scale : 0.0f;
        }
      }
    }

    if (entry.open()) entry.add(&DeviceTileState::probs, block_sum(s, rounded<kType>));

    // O += P V
    const LdmatrixByColumns<kValueDim> v_view(v_tile(stage), lane);
    on_computed<kFeatures>(full, blocks,
                           [&](const auto& those) { multiply_probs<kType>(out, s, v_view, those); });
    if constexpr (kStages == 1) {
      __syncthreads();
      if (step + 1 < walk.count()) load_kv(step + 1);
    }
    if (entry.open()) log_rows(entry, rows, out, args.band.seqlen_q - warp_query, value_columns(args), lane);
  }

  // finish: normalise once
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp * kShape.warp_rows() + 16 * i + 8 * half + (lane >> 2);
      const float sum = kNormalised ? rows.sum[i][half] : row_sum_of_quad(rows.sum[i][half]);
      finish_row<kNormalised>(args, batch, head, query, rows.max[i][half], sum, out.tile[i], half, lane);
    }
  }
  __syncwarp();  // a warp's rows of Q are read by none other
  stage_output<kType>(q_tile, out, warp * kMBlocks, 0, lane);
  __syncthreads();
  store_tile<kAccess, kTile.block_m, kThreads>(
      q_tile, value_rows(args, TensorName::out, batch, head, args.band.seqlen_q), first_query, thread);
}

template <Features kFeatures>
void launch_flash2_mma_forward(const TileProgram& program, LaunchShape shape,
                               const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_mma<kFeatures>(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_grid(flash2_mma_forward<kType, kHeadDim, kFeatures>, program, shape, stream,
                arguments_of<kFeatures>(arguments, program.problem));
  });
}

}  // namespace tilescope::sm80
