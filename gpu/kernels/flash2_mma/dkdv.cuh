// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, backward over kv tiles: dK and dV, and in the fused order dQ as well. Against
// gpu:flash2-simt:
// - The products run on the tensor cores, and scores are computed transposed (S^T = K Q^T), so that P^T and
//   dS^T leave the accumulators as left operands of dV += P^T dO and dK += dS^T Q. A warp feeds its own
//   queries' share from registers, before the barrier after which it reads the rest, which its group's other
//   warps computed, from shared memory. Two barriers a tile are left, and shared memory, which bounds the
//   pass (256 bytes a product in S^T, dP^T and dQ, 160 in dV and dK), is spared a twentieth.
// - dQ is computed first after the barrier and reduced in slices between the last products, 16 bytes a lane.
//   Reduced at once, 8 bytes a lane, it held every warp up: the slices took head_dim 128 from 279 to 312
//   TFLOP/s on an H200, and 256 from 211 to 252.
// Source: FlashAttention-2, arXiv:2307.08691, Algorithm 2; dQ by reductions as in its CUDA kernels.
#pragma once

#include "gpu/kernels/flash2_mma/dkdv_parts.cuh"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/reduce_add.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm80/gather_columns.cuh"

namespace tilescope::sm80 {

template <int kHeadDim, Features kFeatures>
struct DefaultDkdv {
  static constexpr MmaDkdvShape shape =
      kFeatures == Features::values ? mma_values_dkdv_shape() : mma_dkdv_shape(kHeadDim);
};

/// One kv tile of one key/value head: walks the q tiles of every query head of the group. kFused: also
/// reduces dQ (unscaled) into dq_accum.
/// @param work_of  tells what the CTA owns; called where the machine code of a pass of its own wants it
template <ElementType kType, int kHeadDim, bool kFused, Features kFeatures, typename Choice, typename WorkOf>
__device__ __forceinline__ void dkdv_cta(const ArgumentsOf<kFeatures>& args, WorkOf work_of) {
  constexpr MmaDkdvShape kShape = Choice::shape;
  constexpr bool kDropout = has_dropout(kFeatures);
  constexpr RowAccess kAccess = row_access(kFeatures);
  constexpr TileShape kTile = kShape.tile;
  constexpr int kThreads = kShape.threads();
  constexpr int kValueDim = kShape.values(kHeadDim);
  constexpr int kQueryBlocks = kShape.warp_queries() / 16;  // of a warp's S^T
  using Columns = WarpColumns<kHeadDim, kShape.warps_m()>;  // of dK
  using ValueColumns = WarpColumns<kValueDim, kShape.warps_m()>;
  using DqColumns = WarpColumns<kHeadDim, kShape.dq_warps_d()>;
  using Shared = DkdvSharedMemory<kHeadDim, kShape>;
  constexpr int kStages = Shared::layout().stages;

  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const Shared shared{shared_address(shared_bytes)};
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int warp_n = warp / kShape.warps_m();  // its 32 keys
  const int warp_m = warp % kShape.warps_m();  // its queries of S^T, its columns of dK and dV
  const CtaWork work = work_of();
  const int batch = work.batch, kv_head = work.kv_head, n_block = work.first_block;
  const int first_key = n_block * kTile.block_n;
  const auto band = [&]() -> decltype(auto) { return batch_band<is_general(kFeatures)>(args, batch); };
  const auto walk =
      walk_of<kFeatures>(args, work, [&] { return q_tiles<is_general(kFeatures)>(band(), kTile, n_block); });
  const FinerTiles<kFeatures> finer(args, kTile);
  const Interval seen = finer.queries_of_tile(band(), kTile, n_block);
  const auto computed = finer.template queries_of_rows<2>(band(), first_key + 32 * warp_n);

  // Steps: the q tiles of the group's first query head, then those of the next ...
  struct Step {
    int head;
    int position = 0;  // in the scan
  };
  const auto advance = [&walk](Step& step) {
    if (++step.position == walk.count()) {
      step.position = 0;
      ++step.head;
    }
  };
  const auto number_of = [&](const Step& step) {  // among the steps of all heads
    return (step.head - work.first_head) * walk.count() + step.position;
  };
  const auto walked_by = [&](const Step& step) {  // a band's walk is the same for each head
    return is_varied(kFeatures) ? number_of(step) : step.position;
  };
  const auto load_q = [&](const Step& step, int stage) {
    const int first_query = walk.tile(walked_by(step)) * kTile.block_m;
    load_tile<kAccess, kTile.block_m, kThreads>(
        shared.q(stage),
        streamed_rows<kFeatures>(head_rows(args, TensorName::q, batch, step.head, args.band.seqlen_q), seen),
        first_query, thread);
    load_tile<kAccess, kTile.block_m, kThreads>(
        shared.dout(stage),
        streamed_rows<kFeatures>(value_rows(args, TensorName::dout, batch, step.head, args.band.seqlen_q),
                                 seen),
        first_query, thread);
    const auto is_seen = [&](int query) {
      return !cuts_tiles(kFeatures) || (seen.begin <= query && query < seen.end);
    };
    // lse, and delta behind it: 16 bytes a thread, past L1 as tiles go, where every head's rows start at such
    // a boundary.
    if ((args[TensorName::lse].head_stride & 3) == 0) {
      const int place = computed_again(thread);
      if (place < kTile.block_m / 2) {
        const bool second = place >= kTile.block_m / 4;
        const int query = first_query + 4 * (place % (kTile.block_m / 4));
        copy_async_floats(
            shared.lse(stage) + 16 * place,
            row_value(args, second ? TensorName::delta : TensorName::lse, batch, step.head, query),
            is_seen(query) ? args.band.seqlen_q - query : 0);
      }
    } else if (thread < kTile.block_m) {
      const int query = first_query + thread;
      const bool valid = query < args.band.seqlen_q && is_seen(query);
      copy_async_4(shared.lse(stage) + 4 * thread, row_value(args, TensorName::lse, batch, step.head, query),
                   valid);
      copy_async_4(shared.delta(stage) + 4 * thread,
                   row_value(args, TensorName::delta, batch, step.head, query), valid);
    }
    walk.load_entry_after(walked_by(step));
    if (step.position == 0 && step.head != work.first_head) walk.load_slope(step.head);
    commit_copies();
  };

  WarpAccumulator<2, Columns::kBlocks> dk;
  WarpAccumulator<2, ValueColumns::kBlocks> dv;
  dk.clear();
  dv.clear();
  const float scale = product_scale<kFeatures>(args);

  Step next{work.first_head};
  if (!walk.empty()) {
    load_tile<kAccess, kTile.block_n, kThreads>(
        shared.k(), head_rows(args, TensorName::k, batch, kv_head, band().seqlen_k), first_key, thread);
    load_tile<kAccess, kTile.block_n, kThreads>(
        shared.v(), value_rows(args, TensorName::v, batch, kv_head, band().seqlen_k), first_key, thread);
    load_q(next, 0);
  }

  int stage = 0;
#pragma unroll 1
  for (Step step = next; !walk.empty() && step.head < work.end_head; step = next) {
    const int m_block = walk.tile(walked_by(step));
    const int first_query = m_block * kTile.block_m;
    advance(next);
    // load: this tile has arrived for every thread, and every warp is done with the step before
    wait_for_copies<0>();
    __syncthreads();

    // compute: S^T = K Q^T, 32 keys x warp_queries
    WarpAccumulator<2, kQueryBlocks> p;
    p.clear();
    const auto full = [&] { return walk.full(walked_by(step), m_block); };
    const auto blocks =
        computed.in_tile(first_query);  // of the keys that the warp has in all products but dQ
    const auto own_blocks = blocks.from(kQueryBlocks * warp_m);
    on_computed<kFeatures>(full, own_blocks, [&](const auto& those) {
      multiply_abt<kType, kHeadDim>(
          p, LdmatrixByColumns<kHeadDim>(shared.k(), lane).at(2 * warp_n, 0),
          LdmatrixByRows<kHeadDim>(shared.q(stage), lane).at(kQueryBlocks * warp_m, 0), NoInterleave{},
          those);
    });
    const int warp_key = first_key + 32 * warp_n;
    const int warp_query = first_query + kShape.warp_queries() * warp_m;
    const int visited = number_of(step);
    note_step(args, visited);
    const TileLogEntry entry(tile_log<kFeatures>(args), visited, batch, step.head, m_block, n_block);
    const auto sees = [&]() -> decltype(auto) {
      if constexpr (is_varied(kFeatures)) {
        return walk.template seen<true, kTile.block_m>(visited, first_key, first_query);
      } else {
        return band();
      }
    };
    log_scores<true>(entry, args, sees(), p, warp_key, warp_query, lane);
    if constexpr (is_varied(kFeatures)) {
      modify_and_mask<true>(p, args, walk.slope(step.head), sees(), {warp_query, warp_key}, lane);
    } else if (!full()) {
      mask_block<true>(p, band(), warp_key, warp_query, lane, masked_product(args));
    }

    // dP^T = V dO^T, with P^T = exp2(S^T - LSE) between its steps
    const std::uint32_t lane_rows = 4 * (kShape.warp_queries() * warp_m + 2 * (lane & 3));
    constexpr int kProbTiles = 4 * kQueryBlocks;
    constexpr int kDepthSteps = kValueDim / 16;
    const auto exponentiate = [&](int k) {
      constexpr int kTilesAStep = ceil_div(kProbTiles, kDepthSteps);
#pragma unroll
      for (int t = k * kTilesAStep; t < min_of(kProbTiles, (k + 1) * kTilesAStep); ++t) {
        const int j = t / 2;
        const float2 lse = load_shared_float2(shared.lse(stage) + lane_rows + 32 * j);
        Accumulator& tile = p.tile[t % 2][j];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          tile.x[e] =
              exp2_approx(score_exponent(tile.x[e], scale, -lse_exponent(e % 2 == 0 ? lse.x : lse.y)));
        }
      }
    };
    WarpAccumulator<2, kQueryBlocks> ds;
    ds.clear();
    on_computed<kFeatures>(full, own_blocks, [&](const auto& those) {
      multiply_abt<kType, kValueDim>(
          ds, LdmatrixByColumns<kValueDim>(shared.v(), lane).at(2 * warp_n, 0),
          LdmatrixByRows<kValueDim>(shared.dout(stage), lane).at(kQueryBlocks * warp_m, 0), exponentiate,
          those);
    });

    Fragment p_own[kQueryBlocks][2], ds_own[kQueryBlocks][2];
    const DkdvBlock block{batch * args.heads + step.head, warp_key,  warp_query, 2 * warp_n,
                          2 * kQueryBlocks * warp_m,      lane_rows, lane};
    if constexpr (is_varied(kFeatures)) {
      const ScoreDerivatives derivatives{args, walk.slope(step.head), scale};
      make_dscores<kType, kDropout>(args, shared, stage, block, sees(), entry, p, ds, p_own, ds_own,
                                    derivatives);
    } else {
      make_dscores<kType, kDropout>(args, shared, stage, block, band(), entry, p, ds, p_own, ds_own,
                                    NoDerivatives{});
    }

    // dV += P^T dO and dK += dS^T Q over the warp's own queries, before the others' are there
    const auto dout_view = EveryFew<ValueColumns::kStep, kValueDim>{{shared.dout(stage), lane}}.at(
        0, ValueColumns::first(warp_m));
    const auto q_view =
        EveryFew<Columns::kStep, kHeadDim>{{shared.q(stage), lane}}.at(0, Columns::first(warp_m));
    on_computed<kFeatures>(full, own_blocks, [&](const auto& those) {
#pragma unroll
      for (int k = 0; k < kQueryBlocks; ++k) {
        step_ab<kType>(dv, p_own[k], dout_view.at(kQueryBlocks * warp_m, 0), k, those);
      }
#pragma unroll
      for (int k = 0; k < kQueryBlocks; ++k) {
        step_ab<kType>(dk, ds_own[k], q_view.at(kQueryBlocks * warp_m, 0), k, those);
      }
    });
    __syncthreads();
    if (kStages > 1 && next.head < work.end_head) load_q(next, stage ^ 1);

    // dQ of this tile = dS K: 32 queries and a slice of the columns a warp. It leaves in slices between the
    // products below, which hide the time that its reductions take.
    WarpAccumulator<2, kFused ? DqColumns::kBlocks : 1> dq;
    const int dq_query = first_query + 32 * (warp / kShape.dq_warps_d());
    const int dq_col = 16 * DqColumns::first(warp % kShape.dq_warps_d());
    SomeBlocks<2> dq_blocks{};
    if constexpr (kFused && cuts_tiles(kFeatures)) {
      if (!full()) dq_blocks = finer.template keys_of_rows<2>(band(), dq_query).in_tile(first_key);
    }
    const auto is_reduced = [&](int row_block) {  // of rows that were not loaded, nothing is reduced
      return !cuts_tiles(kFeatures) || full() || dq_blocks.columns[row_block] != 0;
    };
    const bool in_quads = kAccess == RowAccess::chunks || rows_in_quads(args[TensorName::dq_accum]);
    const bool whole_dq =
        in_quads && first_query + kTile.block_m <= args.band.seqlen_q && args.head_dim == kHeadDim;
    const DeviceTensor& dq_accum = args[TensorName::dq_accum];
    float* const dq_rows = dq_accum.head<float>(batch, step.head) +
                           (dq_query + (lane >> 2)) * args[TensorName::dq_accum].row_stride + dq_col;
    if constexpr (kFused) {
      const auto left_view =
          LdmatrixByRows<kTile.block_m>(shared.dscores(), lane).at(0, (dq_query - first_query) / 16);
      const auto k_view = EveryFew<DqColumns::kStep, kHeadDim>{{shared.k(), lane}}.at(0, dq_col / 16);
      dq.clear();
      on_computed<kFeatures>(full, dq_blocks, [&](const auto& those) {
#pragma unroll
        for (int k = 0; k < kTile.block_n / 16; ++k) {
          if (!those.has_column(k)) continue;
          const Fragment left[2] = {left_view.load_transposed(k, 0), left_view.load_transposed(k, 1)};
          step_ab<kType>(dq, left, k_view, k, those);
        }
      });
      if (!whole_dq) {
        reduce_edge<DqColumns::kStep>(dq, dq_rows, args[TensorName::dq_accum].row_stride,
                                      args.band.seqlen_q - dq_query - (lane >> 2), args.head_dim - dq_col,
                                      lane, in_quads, is_reduced);
      }
    }
    constexpr int kSlices = 2 * kQueryBlocks * (kShape.warps_m() - 1);
    const auto reduce_slice = [&](int slice) {
      if constexpr (kFused) {
        if (!whole_dq) return;
        constexpr int kReductions = 4 * DqColumns::kBlocks;  // of 4 columns a lane
        constexpr int kPerSlice = ceil_div(kReductions, kSlices);
        float* const rows = dq_rows + gathered_column(lane);
#pragma unroll
        for (int r = slice * kPerSlice; r < min_of(kReductions, (slice + 1) * kPerSlice); ++r) {
          const int i = r % 2, half = r / 2 % 2, j = r / 4;
          if (!is_reduced(i)) continue;
          const float4 values = gather_columns(dq.tile[i][2 * j], dq.tile[i][2 * j + 1], half, lane);
          reduce_add(
              rows + (16 * i + 8 * half) * args[TensorName::dq_accum].row_stride + 16 * DqColumns::kStep * j,
              values);
        }
      }
    };

    // dV and dK over the other warps' queries
    const LdmatrixByColumns<kTile.block_m> probs_view(shared.probs(), lane);
    const LdmatrixByColumns<kTile.block_m> dscores_view(shared.dscores(), lane);
    on_computed<kFeatures>(full, blocks, [&](const auto& those) {
#pragma unroll
      for (int other = 1; other < kShape.warps_m(); ++other) {
        const int query_block = (warp_m + other) % kShape.warps_m() * kQueryBlocks;
        const auto others_probs = probs_view.at(2 * warp_n, query_block);
        const auto others_dscores = dscores_view.at(2 * warp_n, query_block);
        const auto others_blocks = those.from(query_block);
#pragma unroll
        for (int k = 0; k < kQueryBlocks; ++k) {
          const Fragment left[2] = {others_probs.load(0, k), others_probs.load(1, k)};
          step_ab<kType>(dv, left, dout_view.at(query_block, 0), k, others_blocks);
          reduce_slice(2 * (kQueryBlocks * (other - 1) + k));
          const Fragment dleft[2] = {others_dscores.load(0, k), others_dscores.load(1, k)};
          step_ab<kType>(dk, dleft, q_view.at(query_block, 0), k, others_blocks);
          reduce_slice(2 * (kQueryBlocks * (other - 1) + k) + 1);
        }
      }
    });
    if constexpr (kStages == 1) {
      __syncthreads();
      if (next.head < work.end_head) load_q(next, 0);
    }
    if (entry.open()) {
      const int keys = args.band.seqlen_k - warp_key;
      static_assert(!logs_tiles(kFeatures) || Columns::kStep == 1);
      const int cols = args.head_dim - 16 * Columns::first(warp_m);
      const int value_cols = value_columns(args) - 16 * ValueColumns::first(warp_m);
      entry.add(&DeviceTileState::accum,
                inside_sum(dk, keys, cols, lane) + inside_sum(dv, keys, value_cols, lane));
    }
    if constexpr (kStages > 1) stage ^= 1;
  }

  finish_dkdv<kType, kShape, kAccess, Columns, ValueColumns>(args, shared, batch, kv_head, first_key, warp_n,
                                                             warp_m, lane, thread, dk, dv);
}

/// Passes dkdvdq (kFused) and dkdv. CTA: as above. Grid: args.grid.
template <ElementType kType, int kHeadDim, bool kFused, Features kFeatures,
          typename Choice = DefaultDkdv<kHeadDim, kFeatures>>
__global__ __launch_bounds__(Choice::shape.threads(), MmaDkdvShape::ctas_per_sm) void flash2_mma_dkdv(
    const __grid_constant__ ArgumentsOf<kFeatures> args) {
  dkdv_cta<kType, kHeadDim, kFused, kFeatures, Choice>(args, [&] { return kv_work<int>(args); });
}

template <Features kFeatures>
void launch_flash2_mma_dkdv(const TileProgram& program, LaunchShape shape, const KernelArguments& arguments,
                            CUstream_st* stream) {
  dispatch_mma<kFeatures>(program.problem, [&]<ElementType kType, int kHeadDim>() {
    const bool fused = program.name == PassName::dkdvdq;
    launch_grid(fused ? flash2_mma_dkdv<kType, kHeadDim, true, kFeatures>
                      : flash2_mma_dkdv<kType, kHeadDim, false, kFeatures>,
                program, shape, stream, arguments_of<kFeatures>(arguments, program.problem));
  });
}

}  // namespace tilescope::sm80
