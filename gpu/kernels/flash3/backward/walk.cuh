// SPDX-License-Identifier: Apache-2.0
// What every thread of flash3's backward pass walks through: the CTA's kv tiles, the q tiles of each, and the
// pipes that their operands pass through.
#pragma once

#include "cpu_ref/schedule/splits.hpp"
#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/kernels/flash3/forward/tables.cuh"
#include "gpu/kernels/flash3/scores.cuh"
#include "gpu/primitives/sm90/pipe.cuh"

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
  /// Of tables: q tiles, from who asks for them to all others.
  __device__ __forceinline__ auto visits() const { return sm90::Pipe<kLayout.visits>(base); }
  /// And of a partial one, with Q, a bit for each query of each key.
  __device__ __forceinline__ sm90::SharedAddress bits(int q_stage) const {
    return base + kLayout.bits + q_stage * kShape.bit_bytes();
  }
  __device__ __forceinline__ sm90::SharedAddress visit_count() const { return base + kLayout.visit_count; }
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
/// share of it. Of tables `range` has places of tiles in them, and who asks for them finds it out. Shapes
/// that cannot share spare themselves the decoding, for which they have no registers.
template <Flash3BackwardShape kShape>
struct Flash3Stream {
  int batch, n_block, wave_parity;
  int share;   // which heads_of_cta query heads of the batch
  int sharer;  // which of the CTAs that share the kv tile
  TileRange range;

  __device__ __forceinline__ Flash3Stream(const Flash3BackwardArguments& args, int index) {
    if constexpr (kShape.can_share()) {
      const CtaWork work = cta_work<true>(args.grid, args.heads, CtaHeads::kv, 1, index);
      batch = work.batch;
      share = work.first_head / args.heads_of_cta;
      sharer = share % args.heads.splits + args.heads.splits * work.split;
      n_block = work.first_block;
      wave_parity = work.wave_parity;
      if constexpr (!kShape.tables) {
        const int parts = args.grid.num_splits / args.heads.splits;
        const SplitKeys split{parts, kShape.ordered ? args.tiles_of_part : 0};
        range = split.part_of(q_tiles_seen<kShape>(args, n_block), work.split);
      }
    } else {
      const WorkItem work = args.grid.item(index);
      batch = work.head / args.heads.kv;
      share = work.head % args.heads.kv;
      sharer = 0;
      n_block = work.block;
      wave_parity = work.wave_parity;
      range = q_tiles_seen<kShape>(args, n_block);
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

/// Of tables: the range that all have but who asks tables for it, whom the others wait for.
template <Flash3BackwardShape kShape>
__device__ __forceinline__ TileRange told_range(const Flash3BackwardShared<kShape>& shared) {
  sm90::wait(shared.visit_count(), 0, "the number of tiles");
  return {0, load_word(shared.visit_count() + 8), 0, 0};
}

/// Calls visit(stream, query head, q tile) for all tiles of the CTA.
template <Flash3BackwardShape kShape, typename Visit>
__device__ __forceinline__ void each_tile(const Flash3BackwardArguments& args,
                                          const Flash3BackwardShared<kShape>& shared, Visit&& visit) {
  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    Flash3Stream<kShape> stream(args, item.index());
    if constexpr (kShape.tables) stream.range = told_range<kShape>(shared);
    stream.each_tile(args, [&](int head, int m_block) { visit(stream, head, m_block); });
  });
}

}  // namespace tilescope::gpu::detail
