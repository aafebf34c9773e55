// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, backward over q tiles: dQ of the split order. The forward kernel with dO beside Q, dP
// beside S and K once more in V's place: no reductions, so every run gives the same bits, for two products
// more than the fused order.
#pragma once

#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"

namespace tilescope::sm80 {

template <int kHeadDim, Features kFeatures>
struct DefaultDq {
  static constexpr MmaDqShape shape =
      kFeatures == Features::values ? mma_values_dq_shape() : mma_dq_shape(kHeadDim);
};

/// One q tile of one head.
/// @param work_of  tells what the CTA owns
template <ElementType kType, int kHeadDim, Features kFeatures, typename Choice, typename WorkOf>
__device__ __forceinline__ void dq_cta(const ArgumentsOf<kFeatures>& args, WorkOf work_of) {
  constexpr MmaDqShape kShape = Choice::shape;
  constexpr bool kDropout = has_dropout(kFeatures);
  constexpr RowAccess kAccess = row_access(kFeatures);
  constexpr TileShape kTile = kShape.tile;
  constexpr int kThreads = kShape.threads();
  constexpr int kMBlocks = kShape.warp_rows() / 16;
  constexpr int kNBlocks = kTile.block_n / 16;
  constexpr int kValueDim = kShape.values(kHeadDim);
  constexpr int kDBlocks = kHeadDim / 16;
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
  const ValueTile dout_tile{base + kLayout.dout()};
  const auto k_tile = [&](int stage) { return Tile{base + kLayout.k(stage)}; };
  const auto v_tile = [&](int stage) { return ValueTile{base + kLayout.v(stage)}; };

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const CtaWork work = work_of();
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * kTile.block_m;
  const int warp_query = first_query + warp * kShape.warp_rows();
  const auto band = [&]() -> decltype(auto) { return batch_band<is_general(kFeatures)>(args, batch); };
  const auto walk = walk_of<kFeatures>(args, work, [&] { return kv_tiles(band(), kTile, m_block); });

  const FinerTiles<kFeatures> finer(args, kTile);
  const Interval seen = finer.keys_of_tile(band(), kTile, m_block);
  const auto computed = finer.template keys_of_rows<kMBlocks>(band(), warp_query);
  const auto k_rows =
      streamed_rows<kFeatures>(head_rows(args, TensorName::k, batch, work.kv_head, band().seqlen_k), seen);
  const auto v_rows =
      streamed_rows<kFeatures>(value_rows(args, TensorName::v, batch, work.kv_head, band().seqlen_k), seen);
  const auto load_kv = [&](int step) {
    const int first_key = walk.tile(step) * kTile.block_n;
    load_tile<kAccess, kTile.block_n, kThreads>(k_tile(step % kStages), k_rows, first_key, thread);
    load_tile<kAccess, kTile.block_n, kThreads>(v_tile(step % kStages), v_rows, first_key, thread);
    walk.load_entry_after(step);
    commit_copies();
  };

  WarpAccumulator<kMBlocks, kDBlocks> dq;
  dq.clear();
  const float scale = product_scale<kFeatures>(args);
  float lse[kMBlocks][2] = {}, delta[kMBlocks][2] = {};
  if (!walk.empty()) {
    load_tile<kAccess, kTile.block_m, kThreads>(
        q_tile, head_rows(args, TensorName::q, batch, head, args.band.seqlen_q), first_query, thread);
    load_tile<kAccess, kTile.block_m, kThreads>(
        dout_tile, value_rows(args, TensorName::dout, batch, head, args.band.seqlen_q), first_query, thread);
    load_kv(0);
    for (int step = 1; step < kAhead; ++step) {
      if (step < walk.count()) {
        load_kv(step);
      } else {
        commit_copies();
      }
    }
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = warp_query + 16 * i + 8 * half + (lane >> 2);
        if (query < args.band.seqlen_q) {
          lse[i][half] = lse_exponent(*row_value(args, TensorName::lse, batch, head, query));
          delta[i][half] = *row_value(args, TensorName::delta, batch, head, query);
        }
      }
    }
  }
  const auto q_view = LdmatrixByColumns<kHeadDim>(q_tile, lane).at(warp * kMBlocks, 0);
  const auto dout_view = LdmatrixByColumns<kValueDim>(dout_tile, lane).at(warp * kMBlocks, 0);

#pragma unroll 1
  for (int step = 0; step < walk.count(); ++step) {
    note_step(args, step);
    const int n_block = walk.tile(step);
    const int stage = step % kStages;
    // load
    wait_for_copies<kAhead - 1>();
    __syncthreads();
    if (kStages > 1 && step + kAhead < walk.count()) load_kv(step + kAhead);
    if (kAhead > 1 && step + kAhead >= walk.count()) commit_copies();

    // compute: S = Q K^T
    WarpAccumulator<kMBlocks, kNBlocks> p;
    p.clear();
    const int first_key = n_block * kTile.block_n;
    const auto full = [&] { return walk.full(step, n_block); };
    const auto blocks = computed.in_tile(first_key);
    on_computed<kFeatures>(full, blocks, [&](const auto& those) {
      multiply_abt<kType, kHeadDim>(p, q_view, LdmatrixByRows<kHeadDim>(k_tile(stage), lane), NoInterleave{},
                                    those);
    });
    const TileLogEntry entry(tile_log<kFeatures>(args), step, batch, head, m_block, n_block);
    const auto sees = [&]() -> decltype(auto) {
      if constexpr (is_varied(kFeatures)) {
        return walk.template seen<false, kTile.block_n>(step, first_query, first_key);
      } else {
        return band();
      }
    };
    log_scores<false>(entry, args, sees(), p, warp_query, first_key, lane);
    if constexpr (is_varied(kFeatures)) {
      modify_and_mask<false>(p, args, walk.slope(head), sees(), {warp_query, first_key}, lane);
    } else if (!full()) {
      mask_block<false>(p, band(), warp_query, first_key, lane, masked_product(args));
    }

    // dP = dO V^T, with P = exp2(S - LSE) between its steps
    constexpr int kProbTiles = kMBlocks * 2 * kNBlocks;
    const auto exponentiate = [&](int k) {
      constexpr int kTilesAStep = ceil_div(kProbTiles, kValueDim / 16);
#pragma unroll
      for (int t = k * kTilesAStep; t < min_of(kProbTiles, (k + 1) * kTilesAStep); ++t) {
        const int i = t / (2 * kNBlocks);
        Accumulator& tile = p.tile[i][t % (2 * kNBlocks)];
#pragma unroll
        for (int e = 0; e < 4; ++e) tile.x[e] = exp2_approx(score_exponent(tile.x[e], scale, -lse[i][e / 2]));
      }
    };
    WarpAccumulator<kMBlocks, kNBlocks> ds;
    ds.clear();
    on_computed<kFeatures>(full, blocks, [&](const auto& those) {
      multiply_abt<kType, kValueDim>(ds, dout_view, LdmatrixByRows<kValueDim>(v_tile(stage), lane),
                                     exponentiate, those);
    });

    // dS = P * (dP - delta)
    double probs_sum = 0.0, dprobs_sum = 0.0;
    const auto& seen_here = sees();
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kNBlocks; ++j) {
        KeepBits keep = 0xF;
        if constexpr (kDropout) {
          if (!is_varied(kFeatures) || args.dropout.active()) {
            keep = keep_queries_by_keys(args.dropout, work.batch_head, warp_query + 16 * i, first_key + 8 * j,
                                        lane);
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float factor = !kDropout ? 1.0f : keep >> e & 1 ? args.dropout.keep_scale : 0.0f;
          const float prob = p.tile[i][j].x[e];
          const float dropped = factor * ds.tile[i][j].x[e];
          ds.tile[i][j].x[e] = prob * (dropped - delta[i][e / 2]);
          if (entry.open()) {
            probs_sum += static_cast<double>(rounded<kType>(factor * prob));
            if (visible(seen_here, warp_query + 16 * i + 8 * (e / 2) + (lane >> 2),
                        first_key + 8 * j + 2 * (lane & 3) + e % 2)) {
              dprobs_sum += static_cast<double>(dropped);
            }
          }
        }
      }
    }
    if constexpr (is_varied(kFeatures)) {
      const ScoreDerivatives derivatives{args, walk.slope(head), scale};
      if (derivatives.any()) {
#pragma unroll
        for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
          for (int j = 0; j < 2 * kNBlocks; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int query = warp_query + 16 * i + 8 * (e / 2) + (lane >> 2);
              const int key = first_key + 8 * j + 2 * (lane & 3) + e % 2;
              ds.tile[i][j].x[e] *=
                  derivatives.of(p.tile[i][j].x[e], lse[i][e / 2], key - query - args.band.offset());
            }
          }
        }
      }
    }
    if (entry.open()) {
      entry.add(&DeviceTileState::probs, probs_sum);
      entry.add(&DeviceTileState::dprobs, dprobs_sum);
      entry.add(&DeviceTileState::dscores, block_sum(ds, rounded<kType>));
    }

    // dQ += dS K
    const LdmatrixByColumns<kHeadDim> k_view(k_tile(stage), lane);
    on_computed<kFeatures>(full, blocks, [&](const auto& those) {
#pragma unroll
      for (int k = 0; k < kNBlocks; ++k) {
        Fragment left[kMBlocks];
#pragma unroll
        for (int i = 0; i < kMBlocks; ++i) {
          left[i] = as_left_operand<kType>(ds.tile[i][2 * k], ds.tile[i][2 * k + 1]);
        }
        step_ab<kType>(dq, left, k_view, k, those);
      }
    });
    if (entry.open()) {
      entry.add(&DeviceTileState::accum,
                inside_sum(dq, args.band.seqlen_q - warp_query, args.head_dim, lane));
    }
    if constexpr (kStages == 1) {
      __syncthreads();
      if (step + 1 < walk.count()) load_kv(step + 1);
    }
  }

  // finish
  dq.scale(args.softmax_scale);
  __syncthreads();
  stage_output<kType>(q_tile, dq, warp * kMBlocks, 0, lane);
  __syncthreads();
  store_tile<kAccess, kTile.block_m, kThreads>(
      q_tile, head_rows(args, TensorName::dq, batch, head, args.band.seqlen_q), first_query, thread);
}

/// CTA: as above. Grid: args.grid.
template <ElementType kType, int kHeadDim, Features kFeatures,
          typename Choice = DefaultDq<kHeadDim, kFeatures>>
__global__ __launch_bounds__(Choice::shape.threads(), Choice::shape.ctas_per_sm) void flash2_mma_dq(
    const __grid_constant__ ArgumentsOf<kFeatures> args) {
  dq_cta<kType, kHeadDim, kFeatures, Choice>(args, [&] { return query_work<int>(args); });
}

template <Features kFeatures>
void launch_flash2_mma_dq(const TileProgram& program, LaunchShape shape, const KernelArguments& arguments,
                          CUstream_st* stream) {
  dispatch_mma<kFeatures>(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_grid(flash2_mma_dq<kType, kHeadDim, kFeatures>, program, shape, stream,
                arguments_of<kFeatures>(arguments, program.problem));
  });
}

}  // namespace tilescope::sm80
