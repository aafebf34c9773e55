// SPDX-License-Identifier: Apache-2.0
// The loading side of flash3's backward pass: one thread asks the copy engine for tiles; a warp brings LSE
// and delta, which obey no rule of the copy engine's, as the computing warpgroups want them.
#pragma once

#include "gpu/kernels/flash3/backward/tables.cuh"
#include "gpu/kernels/flash3/backward/walk.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// One thread. Of the first kv tile K and V, then Q, dO, Q, dO ...; of the others Q and dO before K and V,
/// for which there is no place as long as those of the kv tile before are read.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_tiles(const Flash3BackwardArgumentsOf<kShape.tables>& args,
                                              Flash3BackwardShared<kShape> shared) {
  using sm90::CacheHint;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  auto q = shared.q();
  auto dout = shared.dout();
  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    Flash3Stream<kShape> stream(args, item.index());
    [[maybe_unused]] auto asked = asked_tiles<kShape>(args, shared, stream);
    const auto k = shared.k();
    const auto v = shared.v();
    const auto load = [&](std::uint32_t target, const CUtensorMap& map, std::uint32_t full,
                          const sm90::PanelTile& tile, int row, int head, CacheHint hint,
                          int more_bytes = 0) {
      sm90::arrive_expecting(full, tile.bytes() + more_bytes);
      for (int panel = 0; panel < tile.panels(); ++panel) {
        sm90::load_box(target + panel * tile.panel_bytes(), map, full, panel * tile.panel_cols(), row, head,
                       stream.batch, hint);
      }
    };
    const auto load_kv = [&] {
      if (kShape.persistent) k.wait_empty(item.place(), "free K and V buffers");
      if (stream.range.empty()) {
        sm90::arrive(k.full());
        sm90::arrive(v.full());
        return;
      }
      const int first_key = stream.n_block * kShape.tile.block_n;
      load(k.buffer(), args.k, k.full(), kKvTile, first_key, stream.kv_head(args), CacheHint::evict_first);
      load(v.buffer(), args.v, v.full(), kKvTile, first_key, stream.kv_head(args), CacheHint::evict_first);
    };
    bool kv_later = kShape.persistent && item.round > 0 && !stream.range.empty();
    if (!kv_later) load_kv();
    stream.each_tile(args, [&](int head, int m_block) {
      [[maybe_unused]] VisitedTile visited;
      int bit_bytes = 0;
      if constexpr (kShape.tables) {
        visited = asked.take_next();
        m_block = visited.tile;
        bit_bytes = asked.bit_bytes(visited);
      }
      const int first_query = m_block * kShape.tile.block_m;
      q.wait_empty("a free Q buffer");
      load(q.buffer(), args.q, q.full(), kQTile, first_query, head, CacheHint::evict_last, bit_bytes);
      if constexpr (kShape.tables) asked.load_bits(visited, q.stage(), q.full());
      q.advance();
      dout.wait_empty("a free dO buffer");
      load(dout.buffer(), args.dout, dout.full(), kQTile, first_query, head, CacheHint::evict_last);
      dout.advance();
      if (kv_later) load_kv();
      kv_later = false;
    });
  });
}

/// Asked anew, since a loading thread has no register to keep it in.
__device__ __forceinline__ int lane_of_warp() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// One warp. LSE in powers of two; rows beyond the matrix have P = 0, and so has what a mask hides from all
/// keys.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_lse_and_delta(const Flash3BackwardArguments& args,
                                                      Flash3BackwardShared<kShape> shared,
                                                      unsigned char* bytes) {
  constexpr int kBlockM = kShape.tile.block_m;
  auto q = shared.q();
  auto dout = shared.dout();
  [[maybe_unused]] auto visits = shared.visits();
  each_tile<kShape>(args, shared, [&](const Flash3Stream<kShape>& stream, int head, int m_block) {
    if constexpr (kShape.tables) m_block = told_tile(visits);
    const int lane = lane_of_warp();
    const int first_query = m_block * kBlockM;
    const std::int64_t first =
        stream.batch * args.lse_batch_stride + head * args.lse_head_stride + first_query;
    // Past L1, so that the bytes are those of the tiles, whatever CTA was there before. One after the other
    // where there are no registers for both.
    constexpr int kRowsALane = kBlockM / 32;
    constexpr bool kTogether = kRowsALane <= 2;
    float lse[kRowsALane], delta[kRowsALane];
    const auto load_delta = [&] {
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        const bool inside = first_query + 32 * i + lane < args.band.seqlen_q;
        delta[i] = inside ? __ldcg(&args.delta[first + 32 * i + lane]) : 0.0f;
      }
    };
    const auto hand_over = [&](const float(&rows)[kRowsALane], int offset, int stage, std::uint32_t full) {
      auto* target = reinterpret_cast<float*>(bytes + offset) + stage * kBlockM;
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) target[32 * i + lane] = rows[i];
      sm90::arrive(full);  // each lane for what it has stored
    };
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
      const bool inside = first_query + 32 * i + lane < args.band.seqlen_q;
      lse[i] = inside ? __ldcg(&args.lse[first + 32 * i + lane]) : -kMinusInfinity;
    }
    if (kTogether) load_delta();
    q.wait_empty("a free LSE buffer");
#pragma unroll
    for (float& row : lse) row = lse_exponent(row);
    hand_over(lse, shared.kLayout.lse, q.stage(), q.full());
    q.advance();
    if (!kTogether) load_delta();
    dout.wait_empty("a free delta buffer");
    hand_over(delta, shared.kLayout.delta, dout.stage(), dout.full());
    dout.advance();
  });
}

}  // namespace tilescope::gpu::detail
