// SPDX-License-Identifier: Apache-2.0
// Flash3Split::keys where dK and dV leave no registers for S and dP of all of a tile's queries (head_dim 136
// to 160): dP comes in halves of 32 queries, and dK takes dS from shared memory. S, P and dS are still in
// fp32 until they are operands. Of dQ the first warpgroup has the first and the last panel, which has 32
// columns, the second one the panel between.
//
// Against Flash3Split::columns at the same head_dim: a warpgroup multiplies its own 64 keys alone, so that
// shared memory is asked for two thirds of the bytes a score.
#pragma once

#include "gpu/kernels/flash3/backward/keys.cuh"

namespace tilescope::gpu::detail {

template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved, int kGroup>
struct Flash3Halves : Flash3Keys<kType, kShape, kObserved, kGroup> {
  using Base = Flash3Keys<kType, kShape, kObserved, kGroup>;
  using Base::args, Base::shared, Base::group, Base::thread, Base::q, Base::dout, Base::ds;
  using Base::arrive_as_warp;
  using Base::kBlockM, Base::kBlockN, Base::kScores, Base::kSums, Base::kBoxes, Base::kDqNumbers;
  using typename Base::Tile;
  static constexpr int kHalf = kScores / 2;  // registers of 32 queries
  static_assert(kBlockM == 64 && kShape.kv_tile().panels() == 3 && kShape.ds_stages() == 1);

  /// dP^T = V dO^T of half of the queries.
  __device__ __forceinline__ void multiply_half(float (&d)[kHalf], int half) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
    const auto rows = [](int first) { return 128u * static_cast<std::uint32_t>(first); };
    const sm90::Operand left(kKvTile, sm90::Major::k, shared.v().buffer() + rows(kShape.first_key(group)));
    const sm90::Operand right(kQTile, sm90::Major::k, dout.buffer() + rows(kBlockM / 2 * half));
#pragma unroll
    for (int i = 0; i < kShape.head_dim / 16; ++i) {
      sm90::multiply<kBlockM / 2, kType>(d, left.at(k_step(kKvTile, sm90::Major::k, i)),
                                         right.at(k_step(kQTile, sm90::Major::k, i)), i > 0);
    }
    sm90::commit_wgmma();
  }
  /// dV += P^T dO of half of the queries.
  __device__ __forceinline__ void add_half(float (&dv)[kSums], const std::uint32_t (&probs)[kHalf / 2],
                                           int half) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile();
    const sm90::Operand right(kQTile, sm90::Major::mn, dout.buffer());
    constexpr int kSteps = kBlockM / 32;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      sm90::multiply<kShape.head_dim, kType, sm90::Major::mn>(
          dv, probs + 4 * i, right.at(k_step(kQTile, sm90::Major::mn, kSteps * half + i)), true);
    }
    sm90::commit_wgmma();
  }
  /// dQ = dS K: this warpgroup's panels, over all keys.
  __device__ __forceinline__ void multiply_panels(float (&dq)[kDqNumbers]) const {
    // The first and the third panel lie as far from each other as those of a tile of twice as many rows.
    constexpr sm90::PanelTile kEveryOther{2 * kBlockN, kShape.head_dim};
    this->template multiply_keys<kEveryOther>(dq, kGroup, ds.buffer());
  }
  /// dK += dS^T Q, of this warpgroup's keys.
  __device__ __forceinline__ void add_dk(float (&dk)[kSums]) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kDsTile = kShape.ds_tile();
    const sm90::Operand left(kDsTile, sm90::Major::k,
                             ds.buffer() + 128u * static_cast<std::uint32_t>(kShape.first_key(group)));
    const sm90::Operand right(kQTile, sm90::Major::mn, q.buffer());
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) {
      sm90::multiply<kShape.head_dim, kType, sm90::Major::k, sm90::Major::mn>(
          dk, left.at(k_step(kDsTile, sm90::Major::k, i)), right.at(k_step(kQTile, sm90::Major::mn, i)),
          true);
    }
    sm90::commit_wgmma();
  }
  /// P, rounded, and dS = P (dP - delta), rounded, of half of the queries.
  __device__ __forceinline__ void round_half(const float* probs, float (&dprobs)[kHalf], int half,
                                             std::uint32_t (&rounded_probs)[kHalf / 2],
                                             std::uint32_t (&rounded_dscores)[kHalf / 2]) const {
#pragma unroll
    for (int i = 0; i < kHalf; i += 4) {
      const float2 delta = this->row_numbers(shared.kLayout.delta, dout.stage(), kHalf * half + i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dprobs[i + e] = probs[i + e] * (dprobs[i + e] - (e % 2 == 0 ? delta.x : delta.y));
      }
      rounded_probs[i / 2] = sm90::pack_pair<kType>(probs[i], probs[i + 1]);
      rounded_probs[i / 2 + 1] = sm90::pack_pair<kType>(probs[i + 2], probs[i + 3]);
    }
    sm90::pack_operands<kType>(dprobs, rounded_dscores);
  }
  __device__ __forceinline__ void store_half(const std::uint32_t (&dscores)[kHalf / 2], int half) const {
    sm90::store_operand<kShape.ds_tile()>(dscores, ds.buffer() + this->warp_rows(), kBlockM / 2 * half,
                                          computed_again(this->lane()));
  }

  /// One tile: load is the producer's part; compute is S beside the first half of dP, P, dS of one half
  /// beside dV of the other, and what they sum to.
  __device__ __forceinline__ void step(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                       const Tile& tile, float (&dk)[kSums], float (&dv)[kSums]) {
    float scores[kScores], dprobs[kHalf];
    q.wait_full("Q");
    sm90::fence_wgmma();
    Base::multiply_transposed(scores, shared.k().buffer(), q.buffer());
    dout.wait_full("dO");
    sm90::fence_wgmma();
    multiply_half(dprobs, 0);
    sm90::wait_for_wgmma<1>();
    if constexpr (kObserved) {
      this->log_tile(item, stream, tile, {}, &DeviceTileState::scores, scores,
                     args.exponent_scale < 0.0f ? -1.0f : 1.0f);
    }
    if (!stream.range.full(tile.m_block)) {
      mask_columns<kShape>(scores, masked_score(args), args,
                           stream.n_block * kBlockN + kShape.first_key(group), tile.m_block * kBlockM,
                           this->this_thread());
    }
    this->exponentiate(scores);
    // The dS of the tile before has been read by all; and a place where control flow meets: see Flash3Keys.
    ds.wait_empty("a free dS buffer");
    sm90::wait_for_wgmma<0>();
    std::uint32_t probs[2][kHalf / 2], dscores[2][kHalf / 2];
    if constexpr (kObserved) log_half(item, stream, tile, dprobs, 0);
    round_half(scores, dprobs, 0, probs[0], dscores[0]);
    if constexpr (kObserved) log_rounded_half(item, tile, probs[0], dscores[0]);
    sm90::fence_wgmma();
    multiply_half(dprobs, 1);
    add_half(dv, probs[0], 0);
    store_half(dscores[0], 0);
    sm90::wait_for_wgmma<kObserved ? 0 : 1>();
    if constexpr (kObserved) log_half(item, stream, tile, dprobs, 1);
    round_half(scores + kHalf, dprobs, 1, probs[1], dscores[1]);
    if constexpr (kObserved) log_rounded_half(item, tile, probs[1], dscores[1]);
    store_half(dscores[1], 1);
    sm90::fence_async_proxy();
    arrive_as_warp(ds.full());
    sm90::fence_wgmma();
    add_half(dv, probs[1], 1);
    sum_dq_and_dk(dk);
    if constexpr (kObserved) {
      const TileLogEntry entry(args.log, tile.number, item.index());
      sm90::log_masked(entry, &DeviceTileState::accum, dk, kBlockN, thread);
      sm90::log_masked(entry, &DeviceTileState::accum, dv, kBlockN, thread);
    }
  }
  /// With dV under way.
  __device__ __forceinline__ void sum_dq_and_dk(float (&dk)[kSums]) {
    float dq[kDqNumbers];
    ds.wait_full("dS of all warps");
    sm90::wait_for_wgmma<0>();
    dout.release();
    sm90::fence_wgmma();
    multiply_panels(dq);
    add_dk(dk);
    sm90::wait_for_wgmma<1>();
    this->template put_dq<0, kBoxes>(dq);
    sm90::wait_for_wgmma<0>();
    arrive_as_warp(ds.empty());
    ds.advance();
    q.release();
  }
  /// What is observed of half of the queries, before products go on.
  __device__ __forceinline__ void log_half(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                           const Tile& tile, const float (&dprobs)[kHalf], int half) const {
    const TileLogEntry entry(args.log, tile.number, item.index());
    sm90::log_visible(entry, &DeviceTileState::dprobs, dprobs, 1.0f, args.band,
                      stream.n_block * kBlockN + kShape.first_key(group),
                      tile.m_block * kBlockM + kBlockM / 2 * half, thread);
  }
  __device__ __forceinline__ void log_rounded_half(const Flash3KvItem& item, const Tile& tile,
                                                   const std::uint32_t (&probs)[kHalf / 2],
                                                   const std::uint32_t (&dscores)[kHalf / 2]) const {
    const TileLogEntry entry(args.log, tile.number, item.index());
    sm90::log_pairs<kType>(entry, &DeviceTileState::probs, probs, kBlockN, thread);
    sm90::log_pairs<kType>(entry, &DeviceTileState::dscores, dscores, kBlockN, thread);
  }

  /// The sums of the CTA's kv tile, and its part of dQ.
  __device__ __forceinline__ void sum(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                      float (&dk)[kSums], float (&dv)[kSums]) {
    shared.k().wait_full(item.place(), "K");
    shared.v().wait_full(item.place(), "V");
    int tile = 0;  // how many there have been
    stream.each_tile(args, [&](int head, int m_block) {
      if (group == 0 && thread == 0) note_step(args.clock, tile, item.index());
      step(item, stream, {tile, head, m_block, false, 0}, dk, dv);
      ++tile;
    });
  }
};

/// A computing warpgroup. Both sum apart and finish together: all of a barrier's threads meet at one
/// instruction.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_halves(const Flash3BackwardArguments& args,
                                               Flash3BackwardShared<kShape> shared,
                                               const unsigned char* bytes, int group, int thread) {
  using Keys = Flash3Keys<kType, kShape, kObserved>;
  const Flash3KvItem item;
  const Flash3Stream<kShape> stream(args, item.index());
  float dk[Keys::kSums] = {}, dv[Keys::kSums] = {};
  if (group == 0) {
    Flash3Halves<kType, kShape, kObserved, 0>{{{args, shared, bytes, group, thread}}}.sum(item, stream, dk,
                                                                                          dv);
  } else {
    Flash3Halves<kType, kShape, kObserved, 1>{{{args, shared, bytes, group, thread}}}.sum(item, stream, dk,
                                                                                          dv);
  }
  // No register keeps a number of it meanwhile.
  const Flash3Stream<kShape> again(args, computed_again(item.index()));
  Keys{{args, shared, bytes, group, computed_again(thread)}}.finish(again, 1, dk, dv);
}

}  // namespace tilescope::gpu::detail
