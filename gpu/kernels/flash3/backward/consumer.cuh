// SPDX-License-Identifier: Apache-2.0
// What every computing warpgroup of flash3's backward pass has, whichever way the two share a tile
// (Flash3Split).
#pragma once

#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/kernels/flash3/backward/dq_sender.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/observe.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::detail {

/// @tparam kGroup  0 or 1 where the two run programs of their own; or -1, and `group` says it
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, int kGroup = -1>
struct Flash3Consumer {
  static constexpr int kBlockM = kShape.tile.block_m, kBlockN = kShape.tile.block_n;
  static constexpr int kScores = kBlockM / 2, kSums = kShape.head_dim / 2;  // registers of a thread
  static constexpr int kBoxes = kShape.dq_boxes(kGroup);                    // of dQ, a tile
  static constexpr int kBoxNumbers = 64 * kShape.dq_box().cols / 128;       // of a thread
  static constexpr int kEveryone = 1;  // the named barrier of all computing warpgroups

  const Flash3BackwardArgumentsOf<kShape.tables>& args;
  Flash3BackwardShared<kShape> shared;
  const unsigned char* bytes;  // the same memory
  int group, thread;           // of the warpgroup
  sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.q> q = shared.q();
  DqRound<kShape, kGroup> dq_round{};

  /// Of the warpgroup; asked anew where there is no register to keep it in.
  __device__ __forceinline__ int this_thread() const {
    if constexpr (!kShape.halves) return thread;
    int cta_thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(cta_thread));
    return cta_thread % 128;
  }
  __device__ __forceinline__ int lane() const { return this_thread() % 32; }
  __device__ __forceinline__ int warp() const { return this_thread() / 32; }
  /// Where a warp's 16 keys begin, in a panel of 128-byte rows.
  __device__ __forceinline__ std::uint32_t warp_rows() const {
    return 128u * static_cast<std::uint32_t>(kShape.first_key(group) + 16 * warp());
  }
  __device__ __forceinline__ void sync_everyone() const {
    sm90::sync_named(kEveryone, 128 * kShape.consumers());
  }
  /// Gives a buffer back, or hands one over: for the warp, whose lanes have done what they do with it. Of
  /// what threads read (LSE, delta, P) each lane says so for itself: racecheck knows no other order of those.
  __device__ __forceinline__ void arrive_as_warp(std::uint32_t barrier) const {
    __syncwarp();
    if (lane() == 0) sm90::arrive(barrier);
  }
  /// LSE or delta of the two queries that registers `first` to `first` + 3 are of.
  __device__ __forceinline__ float2 row_numbers(int offset, int stage, int first) const {
    const auto* numbers = reinterpret_cast<const float*>(bytes + offset) + stage * kBlockM;
    return *reinterpret_cast<const float2*>(numbers + 2 * first + 2 * (lane() % 4));
  }

  /// S^T = K Q^T or dP^T = V dO^T, of this warpgroup's 64 keys
  __device__ __forceinline__ void multiply_transposed(float (&d)[kScores], std::uint32_t keys,
                                                      std::uint32_t queries) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
    const std::uint32_t own = keys + 128u * static_cast<std::uint32_t>(kShape.first_key(group));
    const sm90::Operand left(kKvTile, sm90::Major::k, own), right(kQTile, sm90::Major::k, queries);
#pragma unroll
    for (int i = 0; i < kShape.head_dim / 16; ++i) {
      sm90::multiply<kBlockM, kType>(d, left.at(k_step(kKvTile, sm90::Major::k, i)),
                                     right.at(k_step(kQTile, sm90::Major::k, i)), i > 0);
    }
    sm90::commit_wgmma();
  }
  /// dV += P^T dO or dK += dS^T Q
  __device__ __forceinline__ void multiply_queries(float (&d)[kSums],
                                                   const std::uint32_t (&left)[kScores / 2],
                                                   std::uint32_t queries) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile();
    const sm90::Operand right(kQTile, sm90::Major::mn, queries);
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) {
      sm90::multiply<kShape.head_dim, kType, sm90::Major::mn>(
          d, left + 4 * i, right.at(k_step(kQTile, sm90::Major::mn, i)), true);
    }
    sm90::commit_wgmma();
  }
  /// dQ = dS K: 64 queries and the first 2 kNumbers columns from a panel on, over all keys
  /// @tparam kPanels  where K's panels lie from each other
  template <sm90::PanelTile kPanels = kShape.kv_tile(), int kNumbers>
  __device__ __forceinline__ void multiply_keys(float (&dq)[kNumbers], int panel, std::uint32_t ds) const {
    constexpr sm90::PanelTile kKvTile = kShape.kv_tile(), kDsTile = kShape.ds_tile();
    const std::uint32_t keys =
        shared.k().buffer() + static_cast<std::uint32_t>(panel * kKvTile.panel_bytes());
    const sm90::Operand left(kDsTile, sm90::Major::mn, ds), right(kPanels, sm90::Major::mn, keys);
#pragma unroll
    for (int i = 0; i < kBlockN / 16; ++i) {
      sm90::multiply<2 * kNumbers, kType, sm90::Major::mn, sm90::Major::mn>(
          dq, left.at(k_step(kDsTile, sm90::Major::mn, i)), right.at(k_step(kKvTile, sm90::Major::mn, i)),
          i > 0);
    }
    sm90::commit_wgmma();
  }

  /// P = exp(S - LSE), in place.
  __device__ __forceinline__ void exponentiate(float (&scores)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {  // two queries of two keys
      const float2 lse = row_numbers(shared.kLayout.lse, q.stage(), i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[i + e] =
            exp2_approx(score_exponent(scores[i + e], args.exponent_scale, -(e % 2 == 0 ? lse.x : lse.y)));
      }
    }
  }

  /// Boxes kFrom ... kTo - 1 of a tile's dQ: a warp puts its 16 queries, a box of columns after the other,
  /// where another warp sends them from. Pairs of odd rows go in another order, since they would meet those
  /// of even rows in the same banks.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void put_dq(const float* numbers) {
    constexpr sm90::PanelTile kDqTile = kShape.dq_box();
    const int this_lane = computed_again(lane()), row = this_lane / 4;
    const bool odd = row & 1;
    const std::uint32_t mine = kDqTile.offset(16 * warp() + row, 2 * (this_lane % 4) + (odd ? 16 : 0));
#pragma unroll
    for (int box = kFrom; box < kTo; ++box) {
      const int stage = dq_round.stage(box);
      const auto dq = shared.dq(group);
      sm90::wait(dq.empty_at(stage), dq_round.empty_parity(box), "a free dQ buffer");
      const std::uint32_t pairs = dq.buffer_at(stage) + mine;
#pragma unroll
      for (int i = 0; i < kBoxNumbers / 2; ++i) {
        const int half = i % 2, eight = i / 2 % 4, panel = i / 8;  // rows, columns, 32 columns
        const float* panel_pairs = numbers + kBoxNumbers * (box - kFrom) + 16 * panel + 2 * half;
        const float *even_pair = panel_pairs + 4 * eight, *odd_pair = panel_pairs + 4 * (eight ^ 2);
        sm90::store_pair((pairs ^ static_cast<std::uint32_t>(32 * eight)) + 8 * 128 * half +
                             static_cast<std::uint32_t>(panel * kDqTile.panel_bytes()),
                         odd ? odd_pair[0] : even_pair[0], odd ? odd_pair[1] : even_pair[1]);
      }
      sm90::fence_async_proxy();
      arrive_as_warp(dq.full_at(stage));
    }
    if constexpr (kTo == kBoxes) dq_round.advance();
  }

  /// Adds a warp's 16 keys of dK or dV to the sums of all CTAs that share the kv tile; in an ordered pass it
  /// stores them to the CTA's slot.
  __device__ __forceinline__ void add_to_sums(const float (&d)[kSums], const DeviceTensor& sums,
                                              const Flash3Stream<kShape>& stream, int warp_key) const {
    float* const rows = sums.row<float>(entry_of_sums(stream), stream.kv_head(args), warp_key);
    const int keys = args.band.seqlen_k - warp_key;
    if constexpr (kShape.ordered) {
      sm90::store_rows_fp32(d, rows, sums.row_stride, {8 * sums.row_stride, {keys, keys - 8}}, args.head_dim,
                            lane());
    } else {
      sm90::add_rows_direct(d, rows, sums.row_stride, keys, args.head_dim, lane());
    }
  }
  __device__ __forceinline__ int entry_of_sums(const Flash3Stream<kShape>& stream) const {
    return kShape.ordered ? stream.batch + stream.sharer * args.batches : stream.batch;
  }
  /// One lane sends a warp's 16 keys, by panels of columns.
  /// @param send  (panel's offset in a tile of keys, first column)
  template <typename Send>
  __device__ __forceinline__ void each_panel(Send&& send) const {
    constexpr sm90::PanelTile kKvTile = kShape.kv_tile();
    for (int panel = 0; panel < kKvTile.panels() && 64 * panel < args.head_dim; ++panel) {
      send(static_cast<std::uint32_t>(panel * kKvTile.panel_bytes()), 64 * panel);
    }
  }
};

}  // namespace tilescope::gpu::detail
