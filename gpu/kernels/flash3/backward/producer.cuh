// SPDX-License-Identifier: Apache-2.0
// The loading side of flash3's backward pass: one warp asks the copy engine for tiles; another brings LSE and
// delta, which obey no rule of the copy engine's, as the computing warpgroups want them.
#pragma once

#include "cpu_ref/schedule/splits.hpp"
#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/pipe.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// Shared memory of a CTA, and its operands' pipes, which each thread sees from its own side.
template <Flash3BackwardShape kShape>
struct Flash3BackwardShared {
  static constexpr Flash3BackwardLayout kLayout{kShape};
  sm90::SharedAddress base;

  __device__ __forceinline__ auto k() const { return sm90::Pipe<kLayout.k>(base); }
  __device__ __forceinline__ auto v() const { return sm90::Pipe<kLayout.v>(base); }
  /// With LSE.
  __device__ __forceinline__ auto q() const { return sm90::Pipe<kLayout.q>(base); }
  /// With delta.
  __device__ __forceinline__ auto dout() const { return sm90::Pipe<kLayout.dout>(base); }
  __device__ __forceinline__ auto ds() const { return sm90::Pipe<kLayout.ds>(base); }
  __device__ __forceinline__ auto probs() const { return sm90::Pipe<kLayout.probs>(base); }
  /// What a computing warpgroup has of dQ, from it to who sends it.
  __device__ __forceinline__ auto dq(int group) const { return sm90::Pipe<kLayout.dq>(base, group); }
};

/// A kv tile of a CTA: its only one; or, of a persistent CTA, one of every so-many-th, there and back, so
/// that long and short ones of a causal mask come in turn.
struct Flash3KvItem {
  int round = 0;

  __device__ __forceinline__ int index() const {  // in the grid
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    return round * ctas + (round % 2 == 0 ? cta : ctas - 1 - cta);
  }
  /// Of the pipes of K and V.
  __device__ __forceinline__ sm90::RingPlace<1> place() const {
    return {0, static_cast<std::uint32_t>(round) % 2};
  }
};
/// Calls visit(item) for each kv tile of the CTA.
template <Flash3BackwardShape kShape, typename Visit>
__device__ __forceinline__ void each_item(const Flash3BackwardArguments& args, Visit&& visit) {
  if constexpr (kShape.persistent) {
    const int items = static_cast<int>(args.grid.size());
    for (Flash3KvItem item; item.index() < items; ++item.round) visit(item);
  } else {
    visit(Flash3KvItem{});
  }
}

/// The q tiles that a kv tile is met by: those of `range`, for each query head of the group, or of the CTA's
/// share of it. Shapes that cannot share spare themselves the decoding, for which they have no registers.
template <Flash3BackwardShape kShape>
struct Flash3Stream {
  int batch, n_block, wave_parity;
  int share;  // which heads_of_cta query heads of the batch
  TileRange range;

  __device__ __forceinline__ Flash3Stream(const Flash3BackwardArguments& args, int index) {
    if constexpr (kShape.can_share()) {
      const CtaWork work = cta_work<true>(args.grid, args.heads, CtaHeads::kv, 1, index);
      batch = work.batch;
      share = work.first_head / args.heads_of_cta;
      n_block = work.first_block;
      wave_parity = work.wave_parity;
      range = SplitKeys{args.grid.num_splits / args.heads.splits}.part_of(
          q_tiles(args.band, kShape.tile, n_block), work.split);
    } else {
      const WorkItem work = args.grid.item(index);
      batch = work.head / args.heads.kv;
      share = work.head % args.heads.kv;
      n_block = work.block;
      wave_parity = work.wave_parity;
      range = q_tiles(args.band, kShape.tile, n_block);
    }
  }
  __device__ __forceinline__ int kv_head(const Flash3BackwardArguments& args) const {
    return kShape.can_share() ? share / args.heads.splits : share;
  }
  /// Calls visit(query head, q tile) in the order of the walk.
  template <typename Visit>
  __device__ __forceinline__ void each_tile(const Flash3BackwardArguments& args, Visit&& visit) const {
    for (int h = 0; h < args.heads_of_cta; ++h) {
      for (int step = 0; step < range.count(); ++step) {
        visit(share * args.heads_of_cta + h, scan_tile(args.scan, range, wave_parity, step));
      }
    }
  }
};

/// Calls visit(stream, query head, q tile) for all tiles of the CTA.
template <Flash3BackwardShape kShape, typename Visit>
__device__ __forceinline__ void each_tile(const Flash3BackwardArguments& args, Visit&& visit) {
  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    const Flash3Stream<kShape> stream(args, item.index());
    stream.each_tile(args, [&](int head, int m_block) { visit(stream, head, m_block); });
  });
}

/// One thread. Of the first kv tile K and V, then Q, dO, Q, dO ...; of the others Q and dO before K and V,
/// for which there is no place as long as those of the kv tile before are read.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ void produce_tiles(const Flash3BackwardArguments& args,
                                              Flash3BackwardShared<kShape> shared) {
  using sm90::CacheHint;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  const auto k = shared.k();
  const auto v = shared.v();
  auto q = shared.q();
  auto dout = shared.dout();
  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    const Flash3Stream<kShape> stream(args, item.index());
    const auto load = [&](std::uint32_t target, const CUtensorMap& map, std::uint32_t full,
                          const sm90::PanelTile& tile, int row, int head, CacheHint hint) {
      sm90::arrive_expecting(full, tile.bytes());
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
      const int first_query = m_block * kShape.tile.block_m;
      q.wait_empty("a free Q buffer");
      load(q.buffer(), args.q, q.full(), kQTile, first_query, head, CacheHint::evict_last);
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
  each_tile<kShape>(args, [&](const Flash3Stream<kShape>& stream, int head, int m_block) {
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

/// Where the `i`-th of a tile's boxes of dQ passes: a ring that comes round with the tiles.
template <Flash3BackwardShape kShape, int kGroup>
struct DqRound {
  static constexpr int kBoxes = kShape.dq_boxes(kGroup);
  static constexpr int kStages = kBoxes < kShape.dq_stages() ? kBoxes : kShape.dq_stages();
  static_assert(kBoxes % kStages == 0);
  std::uint32_t round = 0;

  static __device__ __forceinline__ constexpr int stage(int i) { return i % kStages; }
  __device__ __forceinline__ std::uint32_t full_parity(int i) const {
    return round ^ static_cast<std::uint32_t>(i / kStages & 1);
  }
  __device__ __forceinline__ std::uint32_t empty_parity(int i) const { return full_parity(i) ^ 1; }
  __device__ __forceinline__ void advance() { round ^= kBoxes / kStages & 1; }
};

/// The semaphore of a q tile's dQ: what a kv tile does with its part, and when (DqStart).
template <Flash3BackwardShape kShape, int kGroup>
struct DqSemaphore {
  const Flash3BackwardArguments& args;
  const Flash3Stream<kShape>& stream;
  int head, m_block;
  bool stores = false;
  unsigned place = 0;  // of the flags [16 bytes]

  __device__ __forceinline__ void find_place() {
    place = stream.batch * args.flag_batch_stride + head * args.flag_head_stride +
            m_block * args.flag_tile_stride;
  }
  __device__ __forceinline__ int* flag() const { return args.dq_flags + std::uint64_t{place} * 4 + kGroup; }
  /// Kv tiles of the q tile in front of this one. They belong to CTAs that were issued earlier, so that a
  /// wait for them ends.
  __device__ __forceinline__ int before() const {
    return stream.n_block - kv_tiles(args.band, kShape.tile, m_block).begin;
  }
  /// While dQ is being computed: who is first has stored a step ago, as a rule.
  __device__ __forceinline__ void begin() {
    if constexpr (!kShape.persistent) {
      stores = (kShape.ordered || args.dq_flags) && before() == 0;
      find_place();
      if (!kShape.ordered && args.dq_flags && !stores) sm90::wait_for_count(flag(), 1);
    }
  }
  /// Two launches of persistent CTAs could wait for each other's first kv tiles. There whoever comes claims
  /// the q tile, and others wait only for one that is storing.
  __device__ __forceinline__ void wait() {
    if constexpr (kShape.ordered) {
      if (!stores) sm90::wait_for_count(flag(), before());
    } else if constexpr (kShape.persistent) {
      if (!args.dq_flags) return;
      find_place();
      const int state = sm90::claim(flag());
      stores = state == 0;
      if (state == 1) sm90::wait_for_count(flag(), 2);
    }
  }
  __device__ __forceinline__ void release() const {
    if (!kShape.ordered && !stores) return;
    sm90::wait_for_stores<0>();
    sm90::count_up(flag());
  }
};

/// One thread. Adds what its computing warpgroup, or all, have of dQ to memory, or stores it there, a box of
/// 32 columns after the other, of one warpgroup after the other.
template <Flash3BackwardShape kShape, int kSender>
__device__ __forceinline__ void send_dq(const Flash3BackwardArguments& args,
                                        Flash3BackwardShared<kShape> shared) {
  DqRound<kShape, kSender> round;
  constexpr int kGroups = kShape.consumers() / kShape.senders(), kBoxes = round.kBoxes * kGroups;
  constexpr auto group_of = [](int i) { return kSender + i % kGroups; };
  const auto give_back = [&](int i) {
    sm90::arrive(shared.dq(group_of(i)).empty_at(round.stage(i / kGroups)));
  };
  static_assert(kGroups * round.kStages > 1 || kBoxes == 1, "a box is given back when the next one is sent");
  each_tile<kShape>(args, [&](const Flash3Stream<kShape>& stream, int head, int m_block) {
    DqSemaphore<kShape, kSender> semaphore{args, stream, head, m_block};
    semaphore.begin();
    const int first_query = m_block * kShape.tile.block_m + (kShape.dq_by_queries() ? 64 * kSender : 0);
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int group = group_of(i), box_of_group = i / kGroups, stage = round.stage(box_of_group);
      const auto dq = shared.dq(group);
      sm90::wait(dq.full_at(stage), round.full_parity(box_of_group), "dQ");
      if (i == 0) semaphore.wait();
#pragma unroll
      for (int panel = 0; panel < kShape.dq_box().panels(); ++panel) {
        const int col = 64 * kShape.first_dq_panel(group) + box_of_group * kShape.dq_box().cols +
                        panel * kShape.dq_box().panel_cols();
        if (col >= args.head_dim || first_query >= args.band.seqlen_q) continue;
        const std::uint32_t box = dq.buffer_at(stage) + panel * kShape.dq_box().panel_bytes();
        if (semaphore.stores) {
          sm90::store_box(args.dq_accum, box, col, first_query, head, stream.batch);
        } else {
          sm90::add_box(args.dq_accum, box, col, first_query, head, stream.batch);
        }
      }
      sm90::commit_stores();
      if (i > 0) {  // the box before this one has been read
        sm90::wait_for_store_reads<1>();
        give_back(i - 1);
      }
    }
    sm90::wait_for_store_reads<0>();
    give_back(kBoxes - 1);
    round.advance();
    semaphore.release();
  });
}

}  // namespace tilescope::gpu::detail
