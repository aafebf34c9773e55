// SPDX-License-Identifier: Apache-2.0
// The loading side of flash3's backward pass: one warp asks the copy engine for tiles; another brings LSE and
// delta, which obey no rule of the copy engine's, as the computing warpgroups want them.
#pragma once

#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// Shared memory of a CTA, by address.
template <Flash3BackwardShape kShape>
struct Flash3BackwardShared {
  static constexpr Flash3BackwardLayout kLayout{kShape};
  sm90::SharedAddress base;

  __device__ __forceinline__ std::uint32_t k() const { return base + kLayout.k; }
  __device__ __forceinline__ std::uint32_t v() const { return base + kLayout.v; }
  __device__ __forceinline__ std::uint32_t q(int stage) const {
    return base + kLayout.q + stage * kShape.q_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t dout(int stage) const {
    return base + kLayout.dout + stage * kShape.q_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t ds(int stage) const {
    return base + kLayout.ds + stage * kShape.ds_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t probs(int stage) const {
    return base + kLayout.probs + stage * kShape.ds_tile().bytes();
  }
  __device__ __forceinline__ std::uint32_t kv_full() const { return base + kLayout.kv_full; }
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
  /// Calls visit(query head, q tile) in the order of the walk.
  template <typename Visit>
  __device__ __forceinline__ void each_tile(const Flash3BackwardArguments& args, Visit&& visit) const {
    for (int h = 0; h < args.group_size; ++h) {
      for (int step = 0; step < range.count(); ++step) {
        visit(kv_head * args.group_size + h, scan_tile(args.scan, range, turn, step));
      }
    }
  }
};

/// One thread. K and V, then Q, dO, Q, dO ...
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_tiles(const Flash3BackwardArguments& args,
                                              Flash3BackwardShared<kShape> shared) {
  using sm90::CacheHint;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  const Flash3Stream stream(args, kShape.tile);
  if (stream.range.empty()) return;
  const auto load = [&](std::uint32_t target, const CUtensorMap& map, std::uint32_t full,
                        const sm90::PanelTile& tile, int row, int head, CacheHint hint) {
    for (int panel = 0; panel < tile.panels(); ++panel) {
      sm90::load_box(target + panel * tile.panel_bytes(), map, full, panel * tile.panel_cols(), row, head,
                     stream.batch, hint);
    }
  };
  const int first_key = stream.n_block * kShape.tile.block_n;
  sm90::arrive_expecting(shared.kv_full(), 2 * kKvTile.bytes());
  load(shared.k(), args.k, shared.kv_full(), kKvTile, first_key, stream.kv_head, CacheHint::evict_first);
  load(shared.v(), args.v, shared.kv_full(), kKvTile, first_key, stream.kv_head, CacheHint::evict_first);
  sm90::RingPlace<kShape.q_stages> q;
  sm90::RingPlace<kShape.dout_stages> dout;
  stream.each_tile(args, [&](int head, int m_block) {
    const int first_query = m_block * kShape.tile.block_m;
    sm90::wait(shared.q_empty(q.stage), q.empty_parity(), "a free Q buffer");
    sm90::arrive_expecting(shared.q_full(q.stage), kQTile.bytes());
    load(shared.q(q.stage), args.q, shared.q_full(q.stage), kQTile, first_query, head, CacheHint::evict_last);
    q.advance();
    sm90::wait(shared.dout_empty(dout.stage), dout.empty_parity(), "a free dO buffer");
    sm90::arrive_expecting(shared.dout_full(dout.stage), kQTile.bytes());
    load(shared.dout(dout.stage), args.dout, shared.dout_full(dout.stage), kQTile, first_query, head,
         CacheHint::evict_last);
    dout.advance();
  });
}

/// One warp. LSE in powers of two; rows beyond the matrix have P = 0, and so has what a mask hides from all
/// keys.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_statistics(const Flash3BackwardArguments& args,
                                                   Flash3BackwardShared<kShape> shared, unsigned char* bytes,
                                                   int lane) {
  constexpr int kBlockM = kShape.tile.block_m;
  const Flash3Stream stream(args, kShape.tile);
  sm90::RingPlace<kShape.q_stages> q;
  sm90::RingPlace<kShape.dout_stages> dout;
  stream.each_tile(args, [&](int head, int m_block) {
    const int first_query = m_block * kBlockM;
    const std::int64_t first =
        stream.batch * args.statistic_batch_stride + head * args.statistic_head_stride + first_query;
    float lse[kBlockM / 32], delta[kBlockM / 32];
#pragma unroll
    for (int i = 0; i < kBlockM / 32; ++i) {
      const bool inside = first_query + 32 * i + lane < args.band.seqlen_q;
      lse[i] = inside ? lse_exponent(args.lse[first + 32 * i + lane]) : -kMinusInfinity;
      delta[i] = inside ? args.delta[first + 32 * i + lane] : 0.0f;
    }
    const auto hand_over = [&](int offset, int stage, const float(&rows)[kBlockM / 32], std::uint32_t full) {
      auto* target = reinterpret_cast<float*>(bytes + offset) + stage * kBlockM;
#pragma unroll
      for (int i = 0; i < kBlockM / 32; ++i) target[32 * i + lane] = rows[i];
      sm90::arrive(full);  // every lane: its stores are then seen
    };
    sm90::wait(shared.q_empty(q.stage), q.empty_parity(), "a free LSE buffer");
    hand_over(shared.kLayout.lse, q.stage, lse, shared.q_full(q.stage));
    q.advance();
    sm90::wait(shared.dout_empty(dout.stage), dout.empty_parity(), "a free delta buffer");
    hand_over(shared.kLayout.delta, dout.stage, delta, shared.dout_full(dout.stage));
    dout.advance();
  });
}

}  // namespace tilescope::gpu::detail
