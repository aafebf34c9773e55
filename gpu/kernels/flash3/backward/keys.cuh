// SPDX-License-Identifier: Apache-2.0
// Flash3Split::keys: each warpgroup has 64 keys of S, dP, dK and dV, all of whose columns a thread can hold
// up to head_dim 128. P^T and dS^T are left operands in registers of who made them; dS passes through shared
// memory too, since dQ needs all keys: each warpgroup computes 64 columns of it, or 64 queries.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/backward/consumer.cuh"
#include "gpu/kernels/flash3/backward/tables.cuh"

namespace tilescope::gpu::detail {

/// @tparam kGroup  as Flash3Consumer has it
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved, int kGroup = -1>
struct Flash3Keys : Flash3Consumer<kType, kShape, kGroup> {
  using Base = Flash3Consumer<kType, kShape, kGroup>;
  using Base::args, Base::shared, Base::group, Base::thread, Base::q, Base::dq_round;
  using Base::kBlockM, Base::kBlockN, Base::kScores, Base::kSums, Base::kBoxes;
  using Base::lane, Base::warp, Base::warp_rows, Base::sync_everyone, Base::arrive_as_warp;
  using Base::multiply_transposed, Base::multiply_queries;
  static constexpr bool kHasDq = kShape.dq_cols(kGroup) > 0;
  static constexpr int kDqNumbers = kHasDq ? kShape.dq_cols(kGroup) / 2 : 1;  // of a thread
  static_assert(!kShape.dq_behind || !kShape.persistent);
  /// Persistent CTAs: dK leaves through both buffers of dS, and dV through those of dQ.
  static constexpr bool kLeaveByDq = kShape.persistent && !kShape.leave_by_one_ds();

  /// What a step computes of a tile.
  struct Tile {
    int number, head, m_block;  // of those that the CTA's kv tile meets
    bool first;
    int tiles;  // in all
  };

  struct NoTables {};
  using Visit = std::conditional_t<kShape.tables, Flash3QVisit<kShape>, NoTables>;

  sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.dout> dout = shared.dout();
  sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.ds> ds = shared.ds();
  using DsPlace = sm90::RingPlace<kShape.ds_stages()>;

  /// dQ = dS K of a dS that both warpgroups have stored.
  __device__ __forceinline__ void multiply_ds(float (&dq)[kDqNumbers], int stage) const {
    constexpr sm90::PanelTile kDsTile = kShape.ds_tile();
    const int own = kShape.dq_by_queries() ? group * kDsTile.panel_bytes() : 0;
    Base::multiply_keys(dq, kShape.first_dq_panel(group),
                        ds.buffer_at(stage) + static_cast<std::uint32_t>(own));
  }
  __device__ __forceinline__ void multiply_ds_behind(float (&dq)[kDqNumbers], const DsPlace& place) const {
    ds.wait_full(place, "dS");
    sm90::fence_wgmma();
    multiply_ds(dq, place.stage);
  }
  __device__ __forceinline__ void store_ds(const std::uint32_t (&dscores)[kScores / 2], int stage) const {
    constexpr sm90::PanelTile kDsTile = kShape.ds_tile();
    sm90::store_operand<kDsTile>(dscores, ds.buffer_at(stage) + warp_rows(), 0, computed_again(lane()));
    sm90::fence_async_proxy();
  }

  /// What tables say of a tile whose Q is there.
  __device__ __forceinline__ Visit look_at(const Tile& tile) const {
    return Visit(shared.visits().buffer_at(tile.number % shared.kLayout.visits.stages),
                 shared.bits(q.stage()), kShape.first_key(group));
  }

  __device__ __forceinline__ void log_tile(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                           const Tile& tile, const Visit& visit, sm90::TileField field,
                                           const float (&values)[kScores], float factor) const {
    if constexpr (kShape.tables) {
      const TileLogEntry entry(args.log, tile.number, stream.batch, tile.head, visit.tile, stream.n_block,
                               item.index(), group == 0 && thread == 0);
      visit.log_seen(entry, field, values, factor, thread);
    } else {
      const TileLogEntry entry(args.log, tile.number, stream.batch, tile.head, tile.m_block, stream.n_block,
                               item.index(), group == 0 && thread == 0);
      sm90::log_visible(entry, field, values, factor, args.band,
                        stream.n_block * kBlockN + kShape.first_key(group), tile.m_block * kBlockM, thread);
    }
  }

  /// dV, dK and this step's dQ where a tile's dQ waits for the next step, when nobody has to wait for the
  /// other warpgroup's dS any more.
  __device__ __forceinline__ void sum_with_dq_behind(const Tile& tile, const DsPlace& this_ds,
                                                     const std::uint32_t (&probs)[kScores / 2],
                                                     const std::uint32_t (&dscores)[kScores / 2],
                                                     float (&dk)[kSums], float (&dv)[kSums]) {
    float dq[kDqNumbers];
    // The other warpgroup stored its part of the last dS a step ago, and has read the one before that.
    ds.wait_empty(this_ds, "a free dS buffer");
    store_ds(dscores, this_ds.stage);
    arrive_as_warp(ds.full_at(this_ds.stage));
    // A first tile multiplies its own dS, for nothing: in a branch, the WGMMAs would be serialised (C7512).
    if constexpr (kHasDq) {
      multiply_ds_behind(dq, tile.first ? this_ds : this_ds.before());
    } else {
      sm90::fence_wgmma();
    }
    multiply_queries(dv, probs, dout.buffer());
    multiply_queries(dk, dscores, q.buffer());
    if constexpr (kHasDq) {
      sm90::wait_for_wgmma<2>();
      if (!tile.first) {
        arrive_as_warp(ds.empty_at(this_ds.before().stage));
        this->template put_dq<0, kBoxes>(dq);
      }
    }
    sm90::wait_for_wgmma<1>();
    dout.release();
  }
  /// The same where dQ is of this tile.
  __device__ __forceinline__ void sum_with_dq(const Tile& tile, const DsPlace& this_ds,
                                              const std::uint32_t (&probs)[kScores / 2],
                                              const std::uint32_t (&dscores)[kScores / 2], float (&dk)[kSums],
                                              float (&dv)[kSums]) {
    float dq[kDqNumbers];
    if (kLeaveByDq && tile.first) {  // both buffers of dS were written by all
      if (lane() == 0) sm90::wait_for_store_reads<0>();
      sync_everyone();
    }
    store_ds(dscores, this_ds.stage);
    // After the next barrier the buffer through which dK and dV before left is written again.
    if (kShape.persistent && !kLeaveByDq && tile.first && lane() == 0) sm90::wait_for_store_reads<0>();
    if constexpr (!kShape.dq_first) {
      sm90::fence_wgmma();
      multiply_queries(dv, probs, dout.buffer());
    }
    sync_everyone();
    if constexpr (kShape.dq_first) sm90::fence_wgmma();
    multiply_ds(dq, this_ds.stage);
    if constexpr (kShape.dq_first) multiply_queries(dv, probs, dout.buffer());
    multiply_queries(dk, dscores, q.buffer());
    sm90::wait_for_wgmma<2>();
    if constexpr (!kShape.dq_first) {
      dout.release();
      sm90::wait_for_wgmma<1>();
    }
    this->template put_dq<0, kBoxes>(dq);
    if constexpr (kShape.dq_first) {
      sm90::wait_for_wgmma<1>();
      dout.release();
    }
  }

  /// One tile: load is the producer's part; compute is S and dP, P beside dP, then dS, and what they sum to.
  __device__ __forceinline__ void step(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                       const Tile& tile, float (&dk)[kSums], float (&dv)[kSums]) {
    const DsPlace this_ds = ds.place;
    ds.advance();
    float scores[kScores], dprobs[kScores];
    q.wait_full("Q");
    sm90::fence_wgmma();
    multiply_transposed(scores, shared.k().buffer(), q.buffer());
    dout.wait_full("dO");
    sm90::fence_wgmma();
    multiply_transposed(dprobs, shared.v().buffer(), dout.buffer());
    [[maybe_unused]] Visit visit;
    if constexpr (kShape.tables) visit = look_at(tile);
    // Asked early, since the answer takes a while.
    const auto next_q = q.place.next();
    const bool q_ready = tile.number + 1 == tile.tiles || q.is_full(next_q);
    sm90::wait_for_wgmma<1>();
    if constexpr (kObserved) {
      log_tile(item, stream, tile, visit, &DeviceTileState::scores, scores,
               args.exponent_scale < 0.0f ? -1.0f : 1.0f);
    }
    if constexpr (kShape.tables) {
      visit.mask(scores, masked_score(args), thread);
    } else if (!stream.range.full(tile.m_block)) {
      mask_columns<kShape>(scores, masked_score(args), args,
                           stream.n_block * kBlockN + kShape.first_key(group), tile.m_block * kBlockM,
                           thread);
    }
    this->exponentiate(scores);
    // A place where control flow meets: ptxas would move the wait for dP above the exponentials if the two
    // stood in one block.
    if (!q_ready) q.wait_full(next_q, "the next Q");
    sm90::wait_for_wgmma<0>();
    std::uint32_t probs[kScores / 2], dscores[kScores / 2];
    sm90::pack_operands<kType>(scores, probs);
    if constexpr (kObserved) log_tile(item, stream, tile, visit, &DeviceTileState::dprobs, dprobs, 1.0f);
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      const float2 delta = this->row_numbers(shared.kLayout.delta, dout.stage(), i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dprobs[i + e] = scores[i + e] * (dprobs[i + e] - (e % 2 == 0 ? delta.x : delta.y));
      }
    }
    sm90::pack_operands<kType>(dprobs, dscores);
    if constexpr (kObserved) {
      const TileLogEntry entry(args.log, tile.number, item.index());
      sm90::log_pairs<kType>(entry, &DeviceTileState::probs, probs, kBlockN, thread);
      sm90::log_pairs<kType>(entry, &DeviceTileState::dscores, dscores, kBlockN, thread);
    }
    if constexpr (kShape.dq_behind) {
      sum_with_dq_behind(tile, this_ds, probs, dscores, dk, dv);
    } else {
      sum_with_dq(tile, this_ds, probs, dscores, dk, dv);
    }
    sm90::wait_for_wgmma<0>();
    q.release();
    if constexpr (kObserved) {
      const TileLogEntry entry(args.log, tile.number, item.index());
      sm90::log_masked(entry, &DeviceTileState::accum, dk, kBlockN, thread);
      sm90::log_masked(entry, &DeviceTileState::accum, dv, kBlockN, thread);
    }
  }

  /// dK and dV leave: through K and V, once nobody reads them; or, where the next K and V may come, through
  /// the last dS; or through both of dS and dQ's boxes. Or they are added to the sums of several CTAs.
  __device__ __forceinline__ void finish(const Flash3Stream<kShape>& stream, int tiles, float (&dk)[kSums],
                                         float (&dv)[kSums]) const {
    constexpr sm90::PanelTile kKvTile = kShape.kv_tile();
    const int warp_key = stream.n_block * kBlockN + kShape.first_key(group) + 16 * warp();
    if constexpr (kLeaveByDq) {
#pragma unroll
      for (int stage = 0; stage < kShape.dq_stages(); ++stage) {
        sm90::wait(shared.dq(group).empty_at(stage), dq_round.empty_parity(stage), "dQ to have left");
      }
    }
    sync_everyone();
    if (kShape.persistent && lane() == 0) sm90::arrive(shared.k().empty());
    if constexpr (kShape.can_share()) {
      if (args.dk_sums.data) {
        this->add_to_sums(dk, args.dk_sums, stream, warp_key);
        this->add_to_sums(dv, args.dv_sums, stream, warp_key);
        return;
      }
    }
    const std::uint32_t last_ds = ds.buffer_at(kLeaveByDq ? 0 : ds.stage() ^ 1);
    const std::uint32_t dk_rows = (kShape.persistent ? last_ds : shared.k().buffer()) + warp_rows();
    const std::uint32_t dv_rows = (kLeaveByDq          ? shared.dq(0).buffer_at(0)
                                   : kShape.persistent ? last_ds + kKvTile.bytes()
                                                       : shared.v().buffer()) +
                                  warp_rows();
    if (kShape.persistent && tiles == 0) {  // those of the kv tile before may be there still
      if (lane() == 0) sm90::wait_for_store_reads<0>();
      __syncwarp();
    }
#pragma unroll
    for (float& x : dk) x *= args.softmax_scale;
    sm90::stage_rows<kType, kKvTile, kShape.head_dim>(dk, dk_rows, lane());
    sm90::stage_rows<kType, kKvTile, kShape.head_dim>(dv, dv_rows, lane());
    sm90::fence_async_proxy();
    __syncwarp();
    if (lane() != 0) return;
    if (warp_key < args.band.seqlen_k) {
      this->each_panel([&](std::uint32_t panel, int col) {
        sm90::store_box(args.dk, dk_rows + panel, col, warp_key, stream.kv_head(args), stream.batch);
        sm90::store_box(args.dv, dv_rows + panel, col, warp_key, stream.kv_head(args), stream.batch);
      });
    }
    sm90::commit_stores();
    if (!kShape.persistent) sm90::wait_for_store_reads<0>();
  }

  /// The sums of a kv tile, and its part of dQ.
  /// @param tiles  that it meets
  __device__ __forceinline__ void sum(const Flash3KvItem& item, const Flash3Stream<kShape>& stream, int tiles,
                                      float (&dk)[kSums], float (&dv)[kSums]) {
    shared.k().wait_full(item.place(), "K");
    shared.v().wait_full(item.place(), "V");
    int tile = 0;  // how many there have been
    stream.each_tile(args, [&](int head, int m_block) {
      if (group == 0 && thread == 0) note_step(args.clock, tile, item.index());
      step(item, stream, {tile, head, m_block, tile == 0, tiles}, dk, dv);
      ++tile;
    });
    if constexpr (kShape.dq_behind && kHasDq) {
      if (tiles > 0) {
        float dq[kDqNumbers];
        multiply_ds_behind(dq, ds.place.before());
        sm90::wait_for_wgmma<0>();
        this->template put_dq<0, kBoxes>(dq);
      }
    }
  }
};

/// A computing warpgroup. Where the two have programs of their own, they sum apart and finish together: all
/// of a barrier's threads meet at one instruction.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_keys(const Flash3BackwardArgumentsOf<kShape.tables>& args,
                                             Flash3BackwardShared<kShape> shared, const unsigned char* bytes,
                                             int group, int thread) {
  static_assert(!kShape.apart || (kShape.dq_behind && !kShape.persistent));
  using Keys = Flash3Keys<kType, kShape, kObserved>;
  Keys keys{{args, shared, bytes, group, thread}};
  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    Flash3Stream<kShape> stream(args, item.index());
    if constexpr (kShape.tables) stream.range = told_range<kShape>(shared);
    const int tiles = args.heads_of_cta * stream.range.count();
    float dk[Keys::kSums] = {}, dv[Keys::kSums] = {};
    if constexpr (!kShape.apart) {
      keys.sum(item, stream, tiles, dk, dv);
    } else if (group == 0) {
      Flash3Keys<kType, kShape, kObserved, 0>{{args, shared, bytes, group, thread}}.sum(item, stream, tiles,
                                                                                        dk, dv);
    } else {
      Flash3Keys<kType, kShape, kObserved, 1>{{args, shared, bytes, group, thread}}.sum(item, stream, tiles,
                                                                                        dk, dv);
    }
    keys.finish(stream, tiles, dk, dv);
  });
  if (kShape.persistent && keys.lane() == 0) sm90::wait_for_store_reads<0>();
}

}  // namespace tilescope::gpu::detail
