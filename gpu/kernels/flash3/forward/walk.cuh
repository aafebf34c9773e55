// SPDX-License-Identifier: Apache-2.0
// What a computing warpgroup of flash3's forward pass walks through: items that come with Q, and the tiles of
// K and V of each, in rings of buffers.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/producer.cuh"
#include "gpu/kernels/flash3/forward/tables.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/pipe.cuh"

namespace tilescope::gpu::detail {

template <Flash3ForwardShape kShape>
struct Flash3ForwardWalk {
  static constexpr int kBlockN = kShape.tile.block_n;
  static constexpr bool kSplits = kShape.splits_keys, kSkips = kShape.skips;
  static constexpr bool kTables = kShape.tables, kMods = kShape.mods, kInterleaves = kShape.interleaves();
  static_assert(!kSkips || !kShape.ping_pong);
  static_assert(!kTables || (!kSkips && !kSplits));
  static_assert(!kMods || !kSplits);
  static_assert(!kTables || kMods, "modifiers give scores their sign");

  const Flash3ArgumentsOf<kShape.mods, kShape.paged>& args;
  Flash3Shared<kShape> shared;
  const Flash3Item* items;
  int group, thread;  // of the warpgroup
  int row_group;      // of the 64 rows that it computes
  sm90::Pipe<Flash3Shared<kShape>::kLayout.q> q = shared.q(row_group);
  sm90::Pipe<Flash3Shared<kShape>::kLayout.k> k = shared.k();
  sm90::Pipe<Flash3Shared<kShape>::kLayout.v> v = shared.v();
  Flash3Item item{};
  TileRange range{};
  // Steps [full_begin, full_end) of the walk need no mask; this warpgroup's rows see those in [own_begin,
  // own_end).
  int full_begin = 0, full_end = 0, own_begin = 0, own_end = 0;
  Flash3Visit<kTables> visit;  // where tables tell the steps: the one whose scores are computed

  __device__ __forceinline__ int lane() const { return thread % 32; }
  __device__ __forceinline__ int first_query(const Flash3Item& of) const {
    return of.template first_query<kShape>(args, group);
  }

  // A warp gives a buffer of K or V back by one lane, since its WGMMAs are over; all lanes give back that of
  // Q, since each has read the item that came with it.
  __device__ __forceinline__ void release_k() { k.release(lane() == 0); }
  __device__ __forceinline__ void release_v() { v.release(lane() == 0); }
  __device__ __forceinline__ void release_q() { q.release(); }

  __device__ __forceinline__ bool needs_mask(int step) {
    if constexpr (kTables) return visit.partial();
    return step < full_begin || step >= full_end;
  }
  /// The tile of the K buffer that scores are computed from. Its bits arrive meanwhile.
  __device__ __forceinline__ void look_at_tile(int k_stage) {
    if constexpr (kTables) visit.look(args, shared.visit(k_stage), 64 * group, thread);
  }
  /// Gives back what this warpgroup does not need. It waits for it all the same: an arrival belongs to a
  /// phase.
  __device__ __forceinline__ void skip_k(int count) {
    for (int i = 0; i < count; ++i) {
      k.wait_full("a K that is skipped");
      release_k();
    }
  }
  __device__ __forceinline__ void skip_v(int count) {
    for (int i = 0; i < count; ++i) {
      v.wait_full("a V that is skipped");
      release_v();
    }
  }
  __device__ __forceinline__ void skip_tiles(int count) {
    for (int i = 0; i < count; ++i) {
      skip_k(1);
      skip_v(1);
    }
  }
  /// The steps that this warpgroup's rows see.
  __device__ __forceinline__ void look_at_own_rows(bool down) {
    const TileRange own = kv_tiles_of_warpgroup<kShape>(args, first_query(item));
    const int begin = max(own.begin, range.begin), end = min(own.end, range.end);
    const bool none = end <= begin || first_query(item) >= args.band.seqlen_q;
    own_begin = none ? 0 : down ? range.end - end : begin - range.begin;
    own_end = none ? 0 : own_begin + end - begin;
  }
  /// The item that came with Q. True: this warpgroup has something to compute of it.
  __device__ __forceinline__ bool look_at_item() {
    q.wait_full("Q");
    item = items[q.index()];
    if (item.block < 0) return false;
    if constexpr (kTables) {
      range = {0, load_word(shared.visit_count(q.index())), 0, 0};
      own_end = range.count();
      return own_end > 0;
    }
    range = item.template tiles<kShape>(args);
    if (range.empty()) return false;
    // The mask gives scores their sign, where modifiers have not.
    if (!kMods && args.score_sign < 0.0f) range.full_end = range.full_begin;
    const bool down = scan_tile(args.scan, range, item.wave_parity(), 0) != range.begin;
    full_begin = down ? range.end - range.full_end : range.full_begin - range.begin;
    full_end = full_begin + range.full_end - range.full_begin;
    own_end = range.count();
    if constexpr (kSkips) look_at_own_rows(down);
    return own_end > own_begin;
  }
};

}  // namespace tilescope::gpu::detail
