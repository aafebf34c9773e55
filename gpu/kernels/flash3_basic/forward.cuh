// SPDX-License-Identifier: Apache-2.0
// gpu:flash3-basic, forward: FlashAttention-2's order with Hopper's two new units, in the simplest way.
//
// Against gpu:flash2-mma: the copy engine (TMA) brings whole tiles, which one thread asks for that does
// nothing else; and warpgroups multiply by wgmma straight from shared memory. No warp spends registers or
// instructions on loads, addresses or ldmatrix any more: a tile is two products of few instructions and a
// softmax. That should win what the tensor cores of sm_90 have over mma.sync, about 1.5 times. What
// gpu:flash3 adds: products beside the softmax, of the same warpgroup and of the other one (ping-pong),
// maxima that lag, persistent CTAs. Source: FlashAttention-3, arXiv:2407.08608, Algorithm 1;
// FlashAttention-2, arXiv:2307.08691, Algorithm 1.
#pragma once

#include <cuda.h>

#include "gpu/kernels/flash3_basic/shapes.hpp"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/quad_reduce.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/mask.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/observe.cuh"
#include "gpu/primitives/sm90/pipe.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/warpgroup_gemm.cuh"

namespace tilescope::flash3_basic {

using namespace gpu::sm90;

struct ForwardMaps {
  CUtensorMap q, k, v, out;  // boxes of block_m, block_n, block_n and 64 rows
};

/// What a CTA computes: one q tile of one head, from the kv tiles that it sees.
struct QTile {
  CtaWork work;
  TileRange range;

  __device__ explicit QTile(const KernelArguments& args)
      : work(query_work<int>(args)), range(kv_tiles(args.band, ForwardShape::tile, work.first_block)) {}
  __device__ int kv_tile(const KernelArguments& args, int step) const {
    return scan_tile(args.scan, range, work.wave_parity, step);
  }
};

/// Shared memory of a CTA, by address.
template <int kHeadDim>
struct ForwardShared {
  static constexpr ForwardShape kShape{kHeadDim};
  static constexpr ForwardLayout kLayout{kShape};
  static constexpr PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  SharedAddress base;

  __device__ SharedAddress q() const { return base + kLayout.q; }
  __device__ SharedAddress q_full() const { return base + kLayout.q_full; }
  /// K, and V whose tiles come and go with it.
  __device__ auto k() const { return Pipe<kLayout.k>(base); }
  __device__ SharedAddress v(int stage) const { return Pipe<kLayout.v>(base).buffer_at(stage); }
};

/// load: what one thread asks the copy engine for.
template <int kHeadDim>
struct Loader {
  using Shared = ForwardShared<kHeadDim>;
  const KernelArguments& args;
  const ForwardMaps& maps;
  const QTile& own;
  Shared shared;
  Pipe<Shared::kLayout.k> k = shared.k();

  __device__ __forceinline__ void load_q() {
    arrive_expecting(shared.q_full(), Shared::kQTile.bytes());
    load_tile<Shared::kQTile>(shared.q(), maps.q, shared.q_full(),
                              own.work.first_block * ForwardShape::tile.block_m, own.work.first_head,
                              own.work.batch, CacheHint::normal);
  }
  __device__ __forceinline__ void load_kv(int step) {
    const int batch = own.work.batch, kv_head = own.work.kv_head;
    const int first_key = own.kv_tile(args, step) * ForwardShape::tile.block_n;
    k.wait_empty("a free buffer of K and V");
    arrive_expecting(k.full(), 2 * Shared::kKvTile.bytes());
    load_tile<Shared::kKvTile>(k.buffer(), maps.k, k.full(), first_key, kv_head, batch, CacheHint::normal);
    load_tile<Shared::kKvTile>(shared.v(k.stage()), maps.v, k.full(), first_key, kv_head, batch,
                               CacheHint::normal);
    k.advance();
  }
  /// Q and the first `most` tiles of K and V.
  __device__ __forceinline__ void begin(int most) {
    if (own.range.empty()) return;
    load_q();
    for (int step = 0; step < min(most, own.range.count()); ++step) load_kv(step);
  }
};

/// Running maximum (of unscaled scores) and sum of a thread's two rows. Maxima are the row's, sums the
/// thread's own until the end.
struct OnlineRows {
  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0.0f, 0.0f};

  /// One tile of the online softmax: raises the maxima, rescales sums and O, and turns the scores into
  /// un-normalised probabilities.
  template <int kScores, int kOutputs>
  __device__ __forceinline__ void step(float (&scores)[kScores], float (&out)[kOutputs], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float new_max = max[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) new_max = fmaxf(new_max, fmaxf(scores[i], scores[i + 1]));
      new_max = row_max_of_quad(new_max);
      const float shift = exponent_shift(new_max, scale);
      const float factor = rescale_factor(max[half], scale, shift);
      max[half] = new_max;
      sum[half] *= factor;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
        scores[i] = exp2_approx(score_exponent(scores[i], scale, shift));
        scores[i + 1] = exp2_approx(score_exponent(scores[i + 1], scale, shift));
        sum[half] += scores[i] + scores[i + 1];
      }
#pragma unroll
      for (int i = 2 * half; i < kOutputs; i += 4) {
        out[i] *= factor;
        out[i + 1] *= factor;
      }
    }
  }
};

/// finish: normalises a consumer's 64 rows and stores them by the copy engine, and their LSE.
template <WgmmaType kType, int kHeadDim>
__device__ __forceinline__ void store_rows(const KernelArguments& args, const ForwardMaps& maps,
                                           const QTile& own, ForwardShared<kHeadDim> shared,
                                           const OnlineRows& rows, float (&out)[kHeadDim / 2], int consumer,
                                           int thread) {
  using Shared = ForwardShared<kHeadDim>;
  const int batch = own.work.batch, head = own.work.first_head, lane = thread % 32, warp = thread / 32;
  const int first_query = own.work.first_block * ForwardShape::tile.block_m + 64 * consumer;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum_of_quad(rows.sum[half]), normaliser = inverse_sum(sum);
#pragma unroll
    for (int i = 2 * half; i < kHeadDim / 2; i += 4) {
      out[i] *= normaliser;
      out[i + 1] *= normaliser;
    }
    const int query = first_query + accumulator_entry(thread, 2 * half).row;
    if (lane % 4 == 0 && query < args.band.seqlen_q) {
      *args[TensorName::lse].row<float>(batch, head, query) =
          row_lse(rows.max[half], fabsf(args.softmax_scale), sum);
    }
  }
  const SharedAddress own_rows = shared.q() + 128 * 64 * consumer;  // a row of a panel is 128 bytes
  const int barrier = 1 + consumer;
  sync_named(barrier, 128);  // all of this consumer's products have read Q
  stage_rows<kType, Shared::kQTile, kHeadDim>(out, own_rows + 128 * 16 * warp, lane);
  fence_async_proxy();
  sync_named(barrier, 128);
  if (thread == 0 && first_query < args.band.seqlen_q) {
    for (int panel = 0; panel < Shared::kQTile.panels(); ++panel) {
      store_box(maps.out, own_rows + panel * Shared::kQTile.panel_bytes(), 64 * panel, first_query, head,
                batch);
    }
    commit_stores();
    wait_for_store_reads<0>();  // shared memory ends with the CTA
  }
}

/// compute: a consumer, 64 rows of the q tile.
/// @tparam kObserved  logs the tiles that it visits
/// @tparam kSpecialised  others load; else one of these threads does, in whose buffers all have read a tile
template <WgmmaType kType, int kHeadDim, bool kObserved, bool kSpecialised>
__device__ __forceinline__ void consume(const KernelArguments& args, const ForwardMaps& maps,
                                        const QTile& own, ForwardShared<kHeadDim> shared, int consumer,
                                        int thread) {
  using Shared = ForwardShared<kHeadDim>;
  constexpr int kBlockN = ForwardShape::tile.block_n;
  const int first_query = own.work.first_block * ForwardShape::tile.block_m + 64 * consumer;
  const int rows_inside = args.band.seqlen_q - first_query;
  const TileOperand<Shared::kQTile, Major::k> q(shared.q() + 128 * 64 * consumer);
  const float scale = exponent_scale(args);
  OnlineRows rows;
  float out[kHeadDim / 2] = {};
  auto k = shared.k();
  Loader<kHeadDim> loader{args, maps, own, shared};
  const bool loads = !kSpecialised && consumer == 0 && thread == 0;
  if (loads) loader.begin(kStages);
  if (!own.range.empty()) wait(shared.q_full(), 0, "Q");
  for (int step = 0; step < own.range.count(); ++step) {
    if (consumer == 0 && thread == 0) note_step(args.clock, step, work_item());
    const int n_block = own.kv_tile(args, step);
    k.wait_full("K and V");

    float scores[kBlockN / 2];  // S = Q K^T
    fence_wgmma();
    gemm<kType, kHeadDim, false>(scores, q, TileOperand<Shared::kKvTile, Major::k>(k.buffer()));
    commit_wgmma();
    wait_for_wgmma<0>();
    if (kObserved || !own.range.full(n_block) || args.score_sign < 0.0f) {
      mask_scores(scores, args.score_sign, args.band, first_query, n_block * kBlockN, thread);
    }
    const TileLogEntry entry(kObserved ? args.log : DeviceTileLog{}, step, own.work.batch,
                             own.work.first_head, own.work.first_block, n_block, work_item(),
                             consumer == 0 && thread == 0);
    if constexpr (kObserved) log_masked(entry, &DeviceTileState::scores, scores, rows_inside, thread);

    rows.step(scores, out, scale);
    std::uint32_t probs[kBlockN / 4];
    pack_operands<kType>(scores, probs);
    fence_wgmma();  // O += P V
    gemm<kType>(out, probs, TileOperand<Shared::kKvTile, Major::mn>(shared.v(k.stage())));
    commit_wgmma();
    wait_for_wgmma<0>();
    k.release();
    if (loads && step + kStages < own.range.count()) loader.load_kv(step + kStages);
    if constexpr (kObserved) {
      log_rows(entry, rows.max, rows.sum, rows_inside, thread);
      log_pairs<kType>(entry, &DeviceTileState::probs, probs, rows_inside, thread);
      log_masked(entry, &DeviceTileState::accum, out, rows_inside, thread);
    }
  }
  store_rows<kType>(args, maps, own, shared, rows, out, consumer, thread);
}

/// CTA: one q tile of one head. Grid: args.grid. Dynamic shared memory: ForwardLayout.
template <WgmmaType kType, int kHeadDim, bool kObserved, bool kSpecialised = true>
__global__ __launch_bounds__(kSpecialised ? kThreads : kConsumerThreads,
                             1) void flash3_basic_forward(const __grid_constant__ KernelArguments args,
                                                          const __grid_constant__ ForwardMaps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const ForwardShared<kHeadDim> shared{shared_address_of(bytes)};
  if (threadIdx.x == 0) {
    init_barrier(shared.q_full(), 1);
    shared.k().init(1, kConsumerThreads);
    fence_barrier_init();
  }
  __syncthreads();
  const QTile own(args);
  // From one lane to all: the compiler then knows that a warp agrees.
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if constexpr (!kSpecialised) {
    consume<kType, kHeadDim, kObserved, false>(args, maps, own, shared, warpgroup, thread);
  } else if (warpgroup == 0) {
    give_up_registers<kProducerRegisters>();
    if (threadIdx.x == 0) Loader<kHeadDim>{args, maps, own, shared}.begin(own.range.count());
  } else {
    take_registers<kConsumerRegisters>();
    consume<kType, kHeadDim, kObserved, true>(args, maps, own, shared, warpgroup - 1, thread);
  }
}

}  // namespace tilescope::flash3_basic
