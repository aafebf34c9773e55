// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3, fused backward (dK, dV and dQ in one pass), for Hopper (sm_90a), head_dim up to 128. It
// compiles without spills, and its test (tests/gpu/kernels/flash3/device_backward_test.cu) passes on an H200;
// its speed is still to be recorded, and it is not in the registry.
//
// Against gpu:flash2-mma: as in the forward pass; besides, scores are computed transposed, so that P and dS
// are left operands of dV and dK straight from registers, and dQ leaves by the copy engine's additions
// instead of a reduction a thread. Source: FlashAttention-3, arXiv:2407.08608, section B.1; FlashAttention-2,
// arXiv:2307.08691, Algorithm 2.
#pragma once

#include "gpu/kernels/flash3/backward_arguments.cuh"
#include "gpu/primitives/sm80/softmax_math.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu {
namespace detail {

template <Flash3BackwardShape kShape>
struct Flash3BackwardShared {
  static constexpr Flash3BackwardLayout kLayout{kShape};
  sm90::SharedAddress base;

  __device__ __forceinline__ std::uint32_t q(int stage) const {
    return base + kLayout.q + stage * kShape.q_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t dout(int stage) const {
    return base + kLayout.dout + stage * kShape.q_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t q_full(int stage) const {
    return base + kLayout.q_full + 8 * stage;
  }
  __device__ __forceinline__ std::uint32_t q_empty(int stage) const {
    return base + kLayout.q_empty + 8 * stage;
  }
  __device__ __forceinline__ std::uint32_t dout_full(int stage) const {
    return base + kLayout.dout_full + 8 * stage;
  }
  __device__ __forceinline__ std::uint32_t dout_empty(int stage) const {
    return base + kLayout.dout_empty + 8 * stage;
  }
};

/// The q tiles that a CTA streams: those of `range`, for each query head of the group.
struct Flash3Stream {
  int batch, kv_head, n_block, turn;
  TileRange range;

  __device__ __forceinline__ Flash3Stream(const Flash3BackwardArguments& args, TileShape tile) {
    const WorkItem work = args.grid.item(static_cast<int>(blockIdx.x));
    batch = work.head / args.heads_kv;
    kv_head = work.head % args.heads_kv;
    n_block = work.block;
    turn = work.turn;
    range = q_tiles(args.band, tile, n_block);
  }
};

/// Two warps that load. The first asks for tiles; the second brings LSE and delta, which obey no rule of the
/// copy engine's, as the computing warpgroups want them: LSE in powers of two, rows beyond the matrix with P
/// = 0.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_backward(const Flash3BackwardArguments& args,
                                                 Flash3BackwardShared<kShape> shared, unsigned char* bytes,
                                                 int warp, int lane) {
  using sm90::CacheHint;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  constexpr int kBlockM = kShape.tile.block_m;
  const Flash3Stream stream(args, kShape.tile);
  sm90::RingPlace<kShape.stages> ring;
  if (warp == 0 && lane == 0 && !stream.range.empty()) {
    const std::uint32_t kv_full = shared.base + shared.kLayout.kv_full;
    sm90::arrive_expecting(kv_full, 2 * kKvTile.bytes());
    for (int panel = 0; panel < kKvTile.panels(); ++panel) {
      const int col = panel * kKvTile.panel_cols(), row = stream.n_block * kShape.tile.block_n;
      const std::uint32_t offset = panel * kKvTile.panel_bytes();
      sm90::load_box(shared.base + shared.kLayout.k + offset, args.k, kv_full, col, row, stream.kv_head,
                     stream.batch, CacheHint::evict_first);
      sm90::load_box(shared.base + shared.kLayout.v + offset, args.v, kv_full, col, row, stream.kv_head,
                     stream.batch, CacheHint::evict_first);
    }
  }
  for (int h = 0; h < args.group_size; ++h) {
    const int head = stream.kv_head * args.group_size + h;
    for (int step = 0; step < stream.range.count(); ++step) {
      const int first_query = scan_tile(args.scan, stream.range, stream.turn, step) * kBlockM;
      const auto load_tile = [&](std::uint32_t target, const CUtensorMap& map, std::uint32_t full) {
        sm90::arrive_expecting(full, kQTile.bytes());
        for (int panel = 0; panel < kQTile.panels(); ++panel) {
          sm90::load_box(target + panel * kQTile.panel_bytes(), map, full, panel * kQTile.panel_cols(),
                         first_query, head, stream.batch, CacheHint::evict_last);
        }
      };
      if (warp == 0) {
        if (lane == 0) {
          sm90::wait(shared.q_empty(ring.stage), ring.empty_parity(), "a free Q buffer");
          load_tile(shared.q(ring.stage), args.q, shared.q_full(ring.stage));
          sm90::wait(shared.dout_empty(ring.stage), ring.empty_parity(), "a free dO buffer");
          load_tile(shared.dout(ring.stage), args.dout, shared.dout_full(ring.stage));
        }
      } else {
        const std::int64_t first =
            stream.batch * args.statistic_batch_stride + head * args.statistic_head_stride + first_query;
        float lse[kBlockM / 32], delta[kBlockM / 32];
#pragma unroll
        for (int i = 0; i < kBlockM / 32; ++i) {
          const bool inside = first_query + 32 * i + lane < args.band.seqlen_q;
          const float x = inside ? args.lse[first + 32 * i + lane] : -kMinusInfinity;
          lse[i] = x == kMinusInfinity ? 0.0f : x * kLog2E;  // such a row has only masked scores
          delta[i] = inside ? args.delta[first + 32 * i + lane] : 0.0f;
        }
        sm90::wait(shared.q_empty(ring.stage), ring.empty_parity(), "a free LSE buffer");
        sm90::wait(shared.dout_empty(ring.stage), ring.empty_parity(), "a free delta buffer");
        auto* lse_stage = reinterpret_cast<float*>(bytes + shared.kLayout.lse) + ring.stage * kBlockM;
        auto* delta_stage = reinterpret_cast<float*>(bytes + shared.kLayout.delta) + ring.stage * kBlockM;
#pragma unroll
        for (int i = 0; i < kBlockM / 32; ++i) {
          lse_stage[32 * i + lane] = lse[i];
          delta_stage[32 * i + lane] = delta[i];
        }
        sm90::arrive(shared.q_full(ring.stage));  // every lane: its stores are then seen
        sm90::arrive(shared.dout_full(ring.stage));
      }
      ring.advance();
    }
  }
}

/// Makes the invisible entries of a transposed tile `masked`: rows are keys, columns queries.
template <int kScores>
__device__ __forceinline__ void mask_transposed(float (&scores)[kScores], float masked,
                                                const VisibleBand& band, int first_key, int first_query,
                                                int thread) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const sm90::Entry entry = sm90::accumulator_entry(thread, 2 * half);
    const int key = first_key + entry.row;
    const int first = band.first_query(key) - first_query - entry.col;
    const int last = (key < band.seqlen_k ? band.last_query(key) : -1) - first_query - entry.col;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int query = 2 * i + e;
        if (query < first || query > last) scores[i + 2 * half + e] = masked;
      }
    }
  }
}

template <sm90::ProductType kType, Flash3BackwardShape kShape>
__device__ __forceinline__ void consume_backward(const Flash3BackwardArguments& args,
                                                 Flash3BackwardShared<kShape> shared,
                                                 const unsigned char* bytes, int group, int thread) {
  using sm90::Major;
  constexpr int kBlockM = kShape.tile.block_m, kBlockN = kShape.tile.block_n, kHeadDim = kShape.head_dim;
  constexpr int kScores = kBlockM / 2, kDqCols = kHeadDim / kShape.consumers();
  constexpr int kEveryone = 1;  // the named barrier of all computing warpgroups
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile(), kDsTile = kShape.ds_tile(),
                            kDqTile = kShape.dq_tile();
  const int lane = thread % 32, warp = 4 * group + thread / 32;
  const Flash3Stream stream(args, kShape.tile);
  const auto release = [&](std::uint32_t empty) {
    __syncwarp();
    if (lane == 0) sm90::arrive(empty);
  };
  const std::uint32_t my_keys = 64u * 128u * static_cast<std::uint32_t>(group);
  const std::uint32_t k_tile = shared.base + shared.kLayout.k, v_tile = shared.base + shared.kLayout.v,
                      ds_tile = shared.base + shared.kLayout.ds,
                      dq_tile = shared.base + shared.kLayout.dq + warp * kDqTile.bytes();

  float dk[kHeadDim / 2] = {}, dv[kHeadDim / 2] = {};
  sm90::RingPlace<kShape.stages> ring;
  if (!stream.range.empty()) sm90::wait(shared.base + shared.kLayout.kv_full, 0, "K and V");
  for (int h = 0; h < args.group_size; ++h) {
    for (int step = 0; step < stream.range.count(); ++step) {
      const int m_block = scan_tile(args.scan, stream.range, stream.turn, step);
      const int first_query = m_block * kBlockM;
      float scores[kScores], dprobs[kScores];
      // S^T = K Q^T and dP^T = V dO^T
      const auto multiply_transposed = [&](float(&d)[kScores], std::uint32_t keys, std::uint32_t queries) {
        const sm90::Operand left(kKvTile, Major::k, keys + my_keys), right(kQTile, Major::k, queries);
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i) {
          sm90::multiply<kBlockM, kType>(d, left.at(k_step(kKvTile, Major::k, i)),
                                         right.at(k_step(kQTile, Major::k, i)), i > 0);
        }
        sm90::commit_products();
      };
      sm90::wait(shared.q_full(ring.stage), ring.full_parity(), "Q");
      sm90::wait(shared.dout_full(ring.stage), ring.full_parity(), "dO");
      sm90::begin_products();
      multiply_transposed(scores, k_tile, shared.q(ring.stage));
      multiply_transposed(dprobs, v_tile, shared.dout(ring.stage));
      const auto* lse = reinterpret_cast<const float*>(bytes + shared.kLayout.lse) + ring.stage * kBlockM;
      const auto* delta = reinterpret_cast<const float*>(bytes + shared.kLayout.delta) + ring.stage * kBlockM;
      sm90::wait_for_products<1>();
      if (!stream.range.full(m_block)) {
        const float masked = args.exponent_scale < 0.0f ? -kMinusInfinity : kMinusInfinity;
        mask_transposed(scores, masked, args.band, stream.n_block * kBlockN + 64 * group, first_query,
                        thread);
      }
      std::uint32_t probs[kScores / 2], dscores[kScores / 2];
#pragma unroll
      for (int i = 0; i < kScores; i += 4) {  // two queries of two keys
        const float2 shift = *reinterpret_cast<const float2*>(lse + 2 * i + 2 * (lane % 4));
        scores[i] = exp2_approx(fmaf(scores[i], args.exponent_scale, -shift.x));
        scores[i + 1] = exp2_approx(fmaf(scores[i + 1], args.exponent_scale, -shift.y));
        scores[i + 2] = exp2_approx(fmaf(scores[i + 2], args.exponent_scale, -shift.x));
        scores[i + 3] = exp2_approx(fmaf(scores[i + 3], args.exponent_scale, -shift.y));
      }
      sm90::wait_for_products<0>();
      sm90::pack_operands<kType>(scores, probs);
#pragma unroll
      for (int i = 0; i < kScores; i += 4) {
        const float2 row = *reinterpret_cast<const float2*>(delta + 2 * i + 2 * (lane % 4));
        dprobs[i] = scores[i] * (dprobs[i] - row.x);
        dprobs[i + 1] = scores[i + 1] * (dprobs[i + 1] - row.y);
        dprobs[i + 2] = scores[i + 2] * (dprobs[i + 2] - row.x);
        dprobs[i + 3] = scores[i + 3] * (dprobs[i + 3] - row.y);
      }
      sm90::pack_operands<kType>(dprobs, dscores);

      // dS goes to shared memory, for dQ of all keys; the tile before has been read by then.
      sm90::sync_named(kEveryone, 128 * kShape.consumers());
      const sm90::Entry stored = sm90::stored_row(lane);
#pragma unroll
      for (int block = 0; block < kBlockM / 16; ++block) {
        sm90::store_blocks(ds_tile + 16u * 128u * static_cast<std::uint32_t>(warp) +
                               kDsTile.offset(stored.row, 16 * block + stored.col),
                           dscores[4 * block], dscores[4 * block + 1], dscores[4 * block + 2],
                           dscores[4 * block + 3]);
      }
      sm90::fence_async_proxy();
      sm90::sync_named(kEveryone, 128 * kShape.consumers());

      // dV += P^T dO, dQ = dS K (this warpgroup's columns), dK += dS^T Q
      float dq[kDqCols / 2];
      sm90::begin_products();
      const sm90::Operand dout_rows(kQTile, Major::mn, shared.dout(ring.stage)),
          q_rows(kQTile, Major::mn, shared.q(ring.stage)), ds_rows(kDsTile, Major::mn, ds_tile),
          k_rows(kKvTile, Major::mn,
                 k_tile + static_cast<std::uint32_t>(group * kDqCols / 64 * kKvTile.panel_bytes()));
#pragma unroll
      for (int i = 0; i < kBlockM / 16; ++i) {
        sm90::multiply<kHeadDim, kType, Major::mn>(dv, probs + 4 * i,
                                                   dout_rows.at(k_step(kQTile, Major::mn, i)), true);
      }
      sm90::commit_products();
#pragma unroll
      for (int i = 0; i < kBlockN / 16; ++i) {
        sm90::multiply<kDqCols, kType, Major::mn, Major::mn>(dq, ds_rows.at(k_step(kDsTile, Major::mn, i)),
                                                             k_rows.at(k_step(kKvTile, Major::mn, i)), i > 0);
      }
      sm90::commit_products();
#pragma unroll
      for (int i = 0; i < kBlockM / 16; ++i) {
        sm90::multiply<kHeadDim, kType, Major::mn>(dk, dscores + 4 * i,
                                                   q_rows.at(k_step(kQTile, Major::mn, i)), true);
      }
      sm90::commit_products();
      sm90::wait_for_products<2>();
      release(shared.dout_empty(ring.stage));
      sm90::wait_for_products<1>();
      // dQ out, beside dK
      if (lane == 0) sm90::wait_for_store_reads<0>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kDqCols / 2; i += 2) {
        const sm90::Entry entry = sm90::accumulator_entry(lane, i);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(dq_tile + kDqTile.offset(entry.row, entry.col)),
                     "f"(dq[i]), "f"(dq[i + 1])
                     : "memory");
      }
      sm90::fence_async_proxy();
      __syncwarp();
      const int warp_query = first_query + 16 * (thread / 32);
      if (lane == 0 && warp_query < args.band.seqlen_q) {
        for (int panel = 0; panel < kDqTile.panels(); ++panel) {
          sm90::add_box(args.dq_accum, dq_tile + panel * kDqTile.panel_bytes(),
                        group * kDqCols + panel * kDqTile.panel_cols(), warp_query,
                        stream.kv_head * args.group_size + h, stream.batch);
        }
        sm90::commit_stores();
      }
      __syncwarp();
      sm90::wait_for_products<0>();
      release(shared.q_empty(ring.stage));
      ring.advance();
    }
  }

  // finish: K and V make room for dK and dV once nobody reads them
  sm90::sync_named(kEveryone, 128 * kShape.consumers());
#pragma unroll
  for (float& x : dk) x *= args.softmax_scale;
  const std::uint32_t my_rows = 16u * 128u * static_cast<std::uint32_t>(warp);
  sm90::stage_rows<kType, kKvTile, kHeadDim>(dk, k_tile + my_rows, lane);
  sm90::stage_rows<kType, kKvTile, kHeadDim>(dv, v_tile + my_rows, lane);
  sm90::fence_async_proxy();
  __syncwarp();
  const int warp_key = stream.n_block * kBlockN + 16 * warp;
  if (lane == 0) {
    if (warp_key < args.band.seqlen_k) {
      for (int panel = 0; panel < kKvTile.panels(); ++panel) {
        const std::uint32_t rows = panel * kKvTile.panel_bytes() + my_rows;
        const int col = panel * kKvTile.panel_cols();
        sm90::store_box(args.dk, k_tile + rows, col, warp_key, stream.kv_head, stream.batch);
        sm90::store_box(args.dv, v_tile + rows, col, warp_key, stream.kv_head, stream.batch);
      }
    }
    sm90::commit_stores();
    sm90::wait_for_store_reads<0>();
  }
}

}  // namespace detail

/// CTA: one kv tile of one key/value head. Grid: args.grid. Dynamic shared memory: Flash3BackwardLayout.
template <sm90::ProductType kType, typename Choice>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_dkdvdq(const __grid_constant__ Flash3BackwardArguments args) {
  constexpr Flash3BackwardShape kShape = Choice::shape;
  static_assert(Flash3BackwardLayout(kShape).end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3BackwardShared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    sm90::init_barrier(shared.base + shared.kLayout.kv_full, 1);
    for (int stage = 0; stage < kShape.stages; ++stage) {
      sm90::init_barrier(shared.q_full(stage), 1 + 32);  // the copies, and a warp of statistics
      sm90::init_barrier(shared.q_empty(stage), kShape.warps());
      sm90::init_barrier(shared.dout_full(stage), 1 + 32);
      sm90::init_barrier(shared.dout_empty(stage), kShape.warps());
    }
    sm90::fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == 0) {
    sm90::give_up_registers<kShape.producer_registers()>();
    const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < 2) {
      detail::produce_backward<kShape>(args, shared, shared_bytes, warp, static_cast<int>(threadIdx.x) % 32);
    }
  } else {
    sm90::take_registers<kShape.consumer_registers()>();
    detail::consume_backward<kType, kShape>(args, shared, shared_bytes, warpgroup - 1,
                                            static_cast<int>(threadIdx.x) % 128);
  }
}

}  // namespace tilescope::gpu
