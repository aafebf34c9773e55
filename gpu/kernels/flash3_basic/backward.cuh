// SPDX-License-Identifier: Apache-2.0
// gpu:flash3-basic, fused backward (dK, dV and dQ in one pass): FlashAttention-2's order with the copy engine
// and wgmma.
//
// Against gpu:flash2-mma: as in the forward pass; besides, a consumer's P and dS turn into left operands of
// dV and dK in their registers, and the copy engine adds a tile of dQ to memory at one thread's request. What
// gpu:flash3 adds: products beside the exponentials and beside each other, dQ a step behind, a warp that
// sends dQ, persistent CTAs. Source: FlashAttention-3, arXiv:2407.08608, section B.1; FlashAttention-2,
// arXiv:2307.08691, Algorithm 2.
#pragma once

#include "gpu/kernels/flash3_basic/forward.cuh"
#include "gpu/primitives/common/computed_again.cuh"

namespace tilescope::flash3_basic {

struct BackwardMaps {
  CUtensorMap q, k, v, dout;     // boxes of block_m, block_n, block_n and block_m rows
  CUtensorMap dk, dv, dq_accum;  // boxes of 64 rows; of dq_accum, in fp32, of 32 columns
};

/// What a CTA computes: one kv tile of a key/value head, from the q tiles that see it, of each query head of
/// the group.
template <int kHeadDim>
struct KvTile {
  static constexpr TileShape kTile = BackwardShape{kHeadDim}.tile;
  CtaWork work;
  TileRange range;

  __device__ explicit KvTile(const KernelArguments& args)
      : work(kv_work<int>(args)), range(q_tiles(args.band, kTile, work.first_block)) {}
  __device__ int first_key() const { return work.first_block * kTile.block_n; }
  /// Calls visit(query head, q tile) in the order of the walk.
  template <typename Visit>
  __device__ __forceinline__ void each_q_tile(const KernelArguments& args, Visit&& visit) const {
    for (int head = work.first_head; head < work.end_head; ++head) {
      for (int step = 0; step < range.count(); ++step) {
        visit(head, scan_tile(args.scan, range, work.wave_parity, step));
      }
    }
  }
};

/// Shared memory of a CTA, by address.
template <int kHeadDim>
struct BackwardShared {
  static constexpr BackwardShape kShape{kHeadDim};
  static constexpr BackwardLayout kLayout{kShape};
  static constexpr PanelTile kKvTile = kShape.kv_tile(), kQTile = kShape.q_tile(), kDsTile = kShape.ds_tile(),
                             kDqTile = kShape.dq_tile();
  SharedAddress base;

  __device__ SharedAddress k() const { return base + kLayout.k; }
  __device__ SharedAddress v() const { return base + kLayout.v; }
  /// Q, and dO, LSE and delta, whose tiles come and go with it.
  __device__ auto q() const { return Pipe<kLayout.q>(base); }
  __device__ SharedAddress dout(int stage) const { return Pipe<kLayout.dout>(base).buffer_at(stage); }
  __device__ SharedAddress ds() const { return base + kLayout.ds; }
  __device__ SharedAddress dq(int consumer) const { return base + kLayout.dq + consumer * kDqTile.bytes(); }
  __device__ SharedAddress kv_full() const { return base + kLayout.kv_full; }
};

/// load: one thread brings K and V, and then Q and dO tile by tile.
template <int kHeadDim>
__device__ __forceinline__ void produce_tiles(const KernelArguments& args, const BackwardMaps& maps,
                                              const KvTile<kHeadDim>& own, BackwardShared<kHeadDim> shared) {
  using Shared = BackwardShared<kHeadDim>;
  constexpr CacheHint kHint = CacheHint::normal;
  const int batch = own.work.batch, kv_head = own.work.kv_head;
  if (own.range.empty()) return;
  arrive_expecting(shared.kv_full(), 2 * Shared::kKvTile.bytes());
  load_tile<Shared::kKvTile>(shared.k(), maps.k, shared.kv_full(), own.first_key(), kv_head, batch, kHint);
  load_tile<Shared::kKvTile>(shared.v(), maps.v, shared.kv_full(), own.first_key(), kv_head, batch, kHint);
  auto q = shared.q();
  own.each_q_tile(args, [&](int head, int m_block) {
    const int first_query = m_block * Shared::kShape.tile.block_m;
    q.wait_empty("a free buffer of Q and dO");
    arrive_expecting(q.full(), 2 * Shared::kQTile.bytes());
    load_tile<Shared::kQTile>(q.buffer(), maps.q, q.full(), first_query, head, batch, kHint);
    load_tile<Shared::kQTile>(shared.dout(q.stage()), maps.dout, q.full(), first_query, head, batch, kHint);
    q.advance();
  });
}

/// load: one warp brings LSE and delta, whose rows obey no rule of the copy engine's. LSE in powers of two;
/// rows beyond the matrix have P = 0.
template <int kHeadDim>
__device__ __forceinline__ void produce_rows(const KernelArguments& args, const KvTile<kHeadDim>& own,
                                             BackwardShared<kHeadDim> shared, unsigned char* bytes,
                                             int lane) {
  using Shared = BackwardShared<kHeadDim>;
  constexpr int kBlockM = Shared::kShape.tile.block_m;
  auto q = shared.q();
  own.each_q_tile(args, [&](int head, int m_block) {
    const int first_query = m_block * kBlockM;
    const auto* lse_from = args[TensorName::lse].head<float>(own.work.batch, head) + first_query;
    const auto* delta_from = args[TensorName::delta].head<float>(own.work.batch, head) + first_query;
    auto* lse = reinterpret_cast<float*>(bytes + Shared::kLayout.lse) + q.stage() * kBlockM;
    auto* delta = reinterpret_cast<float*>(bytes + Shared::kLayout.delta) + q.stage() * kBlockM;
    q.wait_empty("a free buffer of LSE and delta");
#pragma unroll 1  // registers are few here
    for (int row = lane; row < kBlockM; row += 32) {
      // Past L1, so that the bytes are those of the tiles.
      const bool inside = first_query + row < args.band.seqlen_q;
      lse[row] = inside ? lse_exponent(__ldcg(lse_from + row)) : -kMinusInfinity;
      delta[row] = inside ? __ldcg(delta_from + row) : 0.0f;
    }
    arrive(q.full());  // each lane for what it has stored
    q.advance();
  });
}

/// compute: a consumer, 64 keys of the kv tile, a row of S^T and dP^T each.
template <WgmmaType kType, int kHeadDim, bool kObserved>
struct KeyConsumer {
  using Shared = BackwardShared<kHeadDim>;
  static constexpr PanelTile kKvTile = Shared::kKvTile, kQTile = Shared::kQTile, kDsTile = Shared::kDsTile;
  static constexpr int kBlockM = Shared::kShape.tile.block_m, kBlockN = Shared::kShape.tile.block_n;
  static constexpr int kScores = kBlockM / 2;  // of a thread
  static constexpr int kEveryone = 1;          // the named barrier of both consumers

  const KernelArguments& args;
  const BackwardMaps& maps;
  KvTile<kHeadDim> own;
  Shared shared;
  int consumer, thread;
  Pipe<Shared::kLayout.q> q = shared.q();
  float dk[kHeadDim / 2] = {}, dv[kHeadDim / 2] = {};

  __device__ int lane() const { return thread % 32; }
  __device__ int first_key() const { return own.first_key() + 64 * consumer; }
  /// From a tile of 128 rows to this consumer's, and to this warp's: a row of a panel is 128 bytes.
  __device__ SharedAddress own_rows() const { return 128 * 64 * consumer; }
  __device__ SharedAddress warp_rows() const { return own_rows() + 128 * 16 * (thread / 32); }
  __device__ void sync_consumer() const { sync_named(kEveryone + 1 + consumer, 128); }

  /// S^T = K Q^T and dP^T = V dO^T.
  __device__ __forceinline__ void multiply_scores(float (&scores)[kScores], float (&dprobs)[kScores]) const {
    const TileOperand<kKvTile, Major::k> k(shared.k() + own_rows()), v(shared.v() + own_rows());
    fence_wgmma();
    gemm<kType, kHeadDim, false>(scores, k, TileOperand<kQTile, Major::k>(q.buffer()));
    gemm<kType, kHeadDim, false>(dprobs, v, TileOperand<kQTile, Major::k>(shared.dout(q.stage())));
    commit_wgmma();
    wait_for_wgmma<0>();
  }

  /// P = e^(S - LSE) in place of S, and dS = P (dP - delta) in place of dP. Columns are queries.
  __device__ __forceinline__ void differentiate(float (&scores)[kScores], float (&dprobs)[kScores],
                                                const unsigned char* bytes) const {
    const auto* lse = reinterpret_cast<const float*>(bytes + Shared::kLayout.lse) + q.stage() * kBlockM;
    const auto* delta = reinterpret_cast<const float*>(bytes + Shared::kLayout.delta) + q.stage() * kBlockM;
    const float scale = signed_exponent_scale(args);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int query = accumulator_entry(thread, i).col;
      scores[i] = exp2_approx(score_exponent(scores[i], scale, -lse[query]));
      dprobs[i] = scores[i] * (dprobs[i] - delta[query]);
    }
  }

  /// dV += P^T dO with P from registers; dK += dS^T Q and this consumer's part of dQ = dS K with dS from
  /// shared memory, where it must be since dQ takes that of all keys.
  __device__ __forceinline__ void multiply_gradients(const std::uint32_t (&probs)[kScores / 2],
                                                     const std::uint32_t (&dscores)[kScores / 2],
                                                     float (&dq)[32]) {
    constexpr bool kByRows = Shared::kShape.first_dq_row(1) > 0;
    store_operand<kDsTile>(dscores, shared.ds() + warp_rows(), 0, computed_again(lane()));
    fence_async_proxy();
    sync_named(kEveryone, kConsumerThreads);  // dS is whole
    const int ds_panel = kByRows ? consumer * kDsTile.panel_bytes() : 0;
    const int k_panel = kByRows ? 0 : consumer * kKvTile.panel_bytes();
    fence_wgmma();
    gemm<kType>(dv, probs, TileOperand<kQTile, Major::mn>(shared.dout(q.stage())));
    gemm<kType, kBlockM, true>(dk, TileOperand<kDsTile, Major::k>(shared.ds() + own_rows()),
                               TileOperand<kQTile, Major::mn>(q.buffer()));
    gemm<kType, kBlockN, false>(dq, TileOperand<kDsTile, Major::mn>(shared.ds() + ds_panel),
                                TileOperand<kKvTile, Major::mn>(shared.k() + k_panel));
    commit_wgmma();
    wait_for_wgmma<0>();
    sync_named(kEveryone, kConsumerThreads);  // and has been read
  }

  /// Adds that part to the sums in memory, by the copy engine.
  __device__ __forceinline__ void add_dq(const float (&dq)[32], int head, int m_block) const {
    constexpr BackwardShape kShape{kHeadDim};
    constexpr PanelTile kDqTile = kShape.dq_tile();
    const SharedAddress tile = shared.dq(consumer);
    const int this_thread = computed_again(thread);
    if (thread == 0) wait_for_store_reads<0>();  // of the tile before
    sync_consumer();
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const Entry entry = accumulator_entry(this_thread, i);
      store_pair(tile + kDqTile.offset(entry.row, entry.col), dq[i], dq[i + 1]);
    }
    fence_async_proxy();
    sync_consumer();
    const int first_row = m_block * kBlockM + kShape.first_dq_row(consumer);
    if (thread != 0 || first_row >= args.band.seqlen_q) return;
    for (int panel = 0; panel < kDqTile.panels(); ++panel) {
      const int col = kShape.first_dq_col(consumer) + panel * kDqTile.panel_cols();
      if (col >= args.head_dim) break;
      add_box(maps.dq_accum, tile + panel * kDqTile.panel_bytes(), col, first_row, head, own.work.batch);
    }
    commit_stores();
  }

  /// finish: dK and dV through the buffers of K and V, which nobody reads any more.
  __device__ __forceinline__ void store_gradients() {
#pragma unroll
    for (float& x : dk) x *= args.softmax_scale;
    stage_rows<kType, kKvTile, kHeadDim>(dk, shared.k() + warp_rows(), lane());
    stage_rows<kType, kKvTile, kHeadDim>(dv, shared.v() + warp_rows(), lane());
    fence_async_proxy();
    sync_consumer();
    if (thread != 0) return;
    if (first_key() < args.band.seqlen_k) {
      for (int panel = 0; panel < kKvTile.panels(); ++panel) {
        const SharedAddress rows = own_rows() + panel * kKvTile.panel_bytes();
        store_box(maps.dk, shared.k() + rows, 64 * panel, first_key(), own.work.kv_head, own.work.batch);
        store_box(maps.dv, shared.v() + rows, 64 * panel, first_key(), own.work.kv_head, own.work.batch);
      }
    }
    commit_stores();
    wait_for_store_reads<0>();  // shared memory ends with the CTA
  }

  __device__ __forceinline__ void run(const unsigned char* bytes) {
    int tile = 0;
    if (!own.range.empty()) wait(shared.kv_full(), 0, "K and V");
    own.each_q_tile(args, [&](int head, int m_block) {
      if (consumer == 0 && thread == 0) note_step(args.clock, tile, work_item());
      const TileLogEntry entry(kObserved ? args.log : DeviceTileLog{}, tile++, own.work.batch, head, m_block,
                               own.work.first_block, work_item(), consumer == 0 && thread == 0);
      const auto log_seen = [&](TileField field, const float(&values)[kScores], float factor) {
        if constexpr (kObserved) {
          log_visible(entry, field, values, factor, args.band, first_key(), m_block * kBlockM, thread);
        }
      };
      float scores[kScores], dprobs[kScores], dq[32];
      std::uint32_t p[kScores / 2], ds[kScores / 2];
      q.wait_full("Q and dO");
      multiply_scores(scores, dprobs);
      log_seen(&DeviceTileState::scores, scores, args.score_sign);
      log_seen(&DeviceTileState::dprobs, dprobs, 1.0f);
      if (kObserved || !own.range.full(m_block)) {
        mask_transposed(scores, masked_product(args), args.band, first_key(), m_block * kBlockM,
                        computed_again(thread));
      }
      differentiate(scores, dprobs, bytes);
      pack_operands<kType>(scores, p);
      pack_operands<kType>(dprobs, ds);
      multiply_gradients(p, ds, dq);
      q.release();
      add_dq(dq, head, m_block);
      if constexpr (kObserved) {
        log_pairs<kType>(entry, &DeviceTileState::probs, p, kBlockN, thread);
        log_pairs<kType>(entry, &DeviceTileState::dscores, ds, kBlockN, thread);
        log_masked(entry, &DeviceTileState::accum, dk, kBlockN, thread);
        log_masked(entry, &DeviceTileState::accum, dv, kBlockN, thread);
      }
    });
    store_gradients();
  }
};

/// CTA: one kv tile of one key/value head. Grid: args.grid. Dynamic shared memory: BackwardLayout.
template <WgmmaType kType, int kHeadDim, bool kObserved>
__global__ __launch_bounds__(kThreads,
                             1) void flash3_basic_dkdvdq(const __grid_constant__ KernelArguments args,
                                                         const __grid_constant__ BackwardMaps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const BackwardShared<kHeadDim> shared{shared_address_of(bytes)};
  if (threadIdx.x == 0) {
    init_barrier(shared.kv_full(), 1);
    shared.q().init(1 + 32, kConsumerThreads);  // the copies, and who brings LSE and delta
    fence_barrier_init();
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  if (warpgroup == 0) {
    give_up_registers<kProducerRegisters>();
    if (thread == 0) {
      produce_tiles(args, maps, KvTile<kHeadDim>(args), shared);
    } else if (thread / 32 == 1) {
      produce_rows(args, KvTile<kHeadDim>(args), shared, bytes, thread % 32);
    }
  } else {
    take_registers<kConsumerRegisters>();
    KeyConsumer<kType, kHeadDim, kObserved>{args,   maps,          KvTile<kHeadDim>(args),
                                            shared, warpgroup - 1, thread % 128}
        .run(bytes);
  }
}

}  // namespace tilescope::flash3_basic
