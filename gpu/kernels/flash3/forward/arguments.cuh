// SPDX-License-Identifier: Apache-2.0
// What flash3's forward pass is launched with, and a CTA's shared memory by address.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"
#include "gpu/kernels/flash3/scores.cuh"
#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/sm90/pipe.cuh"

namespace tilescope::gpu {

/// A (B, H, Nq, D) tensor of 16-bit elements; strides in elements.
struct Flash3OutputRows {
  std::uint16_t* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  __device__ __forceinline__ std::uint16_t* row(int batch, int head, int row) const {
    return data + batch * batch_stride + head * head_stride + row * row_stride;
  }
};

struct Flash3ForwardArguments {
  CUtensorMap q, k, v, out;   // head_panels(): boxes of 64, block_n, block_n and 16 rows
  Flash3OutputRows out_rows;  // the same tensor as `out`
  int out_cols = 1;           // of O
  float* lse = nullptr;       // (B, H, Nq), or the splits' one after the other; strides in elements
  std::int64_t lse_batch_stride = 0, lse_head_stride = 0;
  SplitKeys splits;
  DeviceTensor out_parts;  // where keys are split, in place of `out`: fp32, one split after the other
  int batches = 1;
  Grid grid;
  Scan scan = Scan::descending;
  VisibleBand band;   // of heads that are packed one after the other, its rows are those of all
  int head_bits = 0;  // of interleaved heads: they are 1 << head_bits
  int heads = 1;
  int group_size = 1;           // query heads a key/value head
  float softmax_scale = 1.0f;   // |scale|
  float exponent_scale = 1.0f;  // |scale| log2(e), at least the smallest normal number
  float score_sign = 1.0f;      // of the scale
  WorkCounter* counter = nullptr;
  DeviceTileLog log;  // of observed instances
  StepClock clock;
  DeviceVisits visits;  // of shapes with tables
};

/// Modifiers of scores (ScoreMods), which take products of Q and K to modified ones: a scaled score is
/// |scale| times either.
struct Flash3ScoreMods {
  float softcap = 0.0f;         // 0: none
  float exponent = 0.0f;        // 2 log2(e) / softcap, with the sign of the scale
  float minus_twice = 0.0f;     // -2 softcap
  float tanh_terms[4] = {};     // softcap tanh(x / softcap) / x by powers of x^2, with the sign of the scale
  float most_by_terms = -1.0f;  // |product| up to which these do
  const float* slopes = nullptr;  // of ALiBi, of query heads; null: none
  const float* sinks = nullptr;   // learned, of query heads; null: none
  float per_scale = 1.0f;         // 1 / |scale|: takes slopes and sinks to products
  float sign = 1.0f;              // of the scale, where no cap has put it on
};

struct Flash3ModifierArguments : Flash3ForwardArguments {
  Flash3ScoreMods mods;
};
/// Keys and values in pages: the batch entries of `k` and `v` are pages, in boxes of the rows that half a
/// tile has in one.
struct Flash3PagedArguments : Flash3ForwardArguments {
  CUtensorMap k_end, v_end;  // of the page in which keys end: what is behind them is outside
  DeviceKvPages pages;
};
/// What an instance is launched with. @tparam kMods, kPaged  of its shape
template <bool kMods, bool kPaged>
using Flash3ArgumentsOf =
    std::conditional_t<kPaged, Flash3PagedArguments,
                       std::conditional_t<kMods, Flash3ModifierArguments, Flash3ForwardArguments>>;

/// One q tile of one head, as the producer hands it to the consumers.
struct Flash3Item {
  int part;  // of the batch entries of all splits, one split after the other: as partial results lie
  int head;
  int block;  // -1: there are no more
  std::uint32_t
      place;  // four times its index in the grid, plus twice whether rows are flipped, plus its wave's parity

  __device__ __forceinline__ int batch(const Flash3ForwardArguments& args) const {
    return args.splits.count == 1 ? part : part % args.batches;
  }
  /// The kv tiles that its rows see, of those of its split. Rows beyond the matrix, which nobody stores, ask
  /// for no mask.
  template <auto kShape>
  __device__ __forceinline__ TileRange tiles(const Flash3ForwardArguments& args) const {
    const int queries = kShape.tile.block_m >> head_bits<kShape>(args), first = block * queries;
    const TileRange all = tilescope::detail::kv_tiles_of_rows(
        seen_band(args), kShape.tile, first, min(args.band.seqlen_q, first + queries) - 1, false);
    return args.splits.count == 1 ? all : args.splits.part_of(all, part / args.batches);
  }
  __device__ __forceinline__ int wave_parity() const { return static_cast<int>(place & 1); }
  __device__ __forceinline__ bool flipped() const { return place & 2; }
  __device__ __forceinline__ unsigned index() const { return place >> 2; }
  /// Of a tile's rows, the first of the 64 that a warpgroup computes. Under a mask those of one end take
  /// longer: they change their warpgroup from item to item.
  template <auto kShape>
  __device__ __forceinline__ int first_row(int group) const {
    if constexpr (kShape.row_groups() != kShape.consumers()) group = 0;
    if constexpr (kShape.consumers() > 3) group = flipped() ? kShape.consumers() - 1 - group : group;
    return 64 * group;
  }
  /// Its query.
  template <auto kShape>
  __device__ __forceinline__ int first_query(const Flash3ForwardArguments& args, int group) const {
    return (block * kShape.tile.block_m + first_row<kShape>(group)) >> head_bits<kShape>(args);
  }
};

namespace detail {

/// Shared memory of a CTA, and its operands' pipes, which each thread sees from its own side.
template <Flash3ForwardShape kShape>
struct Flash3Shared {
  static constexpr Flash3ForwardLayout kLayout{kShape};
  sm90::SharedAddress base;

  /// Q with its item, of each of the row groups.
  __device__ __forceinline__ auto q(int row_group = 0) const {
    return sm90::Pipe<kLayout.q>(base, row_group);
  }
  __device__ __forceinline__ auto k() const { return sm90::Pipe<kLayout.k>(base); }
  __device__ __forceinline__ auto v() const { return sm90::Pipe<kLayout.v>(base); }
  /// Of tables: the tile that a K buffer has and the place of its bits, and how many tiles the item of a Q
  /// buffer visits.
  __device__ __forceinline__ sm90::SharedAddress visit(int k_stage) const {
    return base + kLayout.visits + 8 * k_stage;
  }
  __device__ __forceinline__ sm90::SharedAddress visit_count(int q_index) const {
    return base + kLayout.visits + 8 * kShape.kv_stages + 4 * q_index;
  }
  /// Of modifiers: slope and sink of the head of a Q buffer's item.
  __device__ __forceinline__ sm90::SharedAddress head_numbers(int q_index) const {
    return base + kLayout.head_numbers + kHeadNumbersBytes * q_index;
  }
  /// What the second part of the keys gives, from a thread to its twin.
  __device__ __forceinline__ auto part() const { return sm90::Pipe<kLayout.part>(base); }
};

}  // namespace detail

}  // namespace tilescope::gpu
