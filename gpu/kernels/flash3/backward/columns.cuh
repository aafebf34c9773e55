// SPDX-License-Identifier: Apache-2.0
// Flash3Split::columns: three warpgroups, each of 64 columns of dK, dV and dQ over all 96 keys, and of 32
// keys of S and dP. dK and dV are summed transposed, so that their 64 rows are columns of the matrices: a
// thread then holds 48 numbers of each, where 64 keys of all 192 columns would be 96. P and dS pass through
// shared memory, a row a key, since each warpgroup's sums need all keys. Source of the division:
// FlashAttention-3, arXiv:2407.08608, whose published kernel has it at head_dim 192.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/backward/consumer.cuh"

namespace tilescope::gpu::detail {

/// As sm90::add_transposed_direct(), but stores.
template <int kCount>
__device__ __forceinline__ void store_transposed_direct(const float (&d)[kCount], float* target,
                                                        std::int64_t row_stride, int rows, int cols,
                                                        int lane) {
  const int col = lane / 4;
  float* first = target + 2 * (lane % 4) * row_stride + col;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = 8 * (i / 4) + i % 2, below = 8 * (i / 2 % 2);
    if (row + 2 * (lane % 4) < rows && col + below < cols) first[row * row_stride + below] = d[i];
  }
}

template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
struct Flash3Columns : Flash3Consumer<kType, kShape> {
  using Base = Flash3Consumer<kType, kShape>;
  using Base::args, Base::shared, Base::bytes, Base::group, Base::thread, Base::q;
  using Base::kBlockM, Base::kBlockN, Base::kBoxes, Base::kBoxNumbers;
  using Base::lane, Base::warp, Base::sync_everyone, Base::arrive_as_warp;
  static constexpr int kOwnKeys = kBlockN / kShape.consumers();
  // Registers of a thread: S or dP of its keys; dK or dV, and dQ, of its columns.
  static constexpr int kScores = kOwnKeys / 2, kSums = kBlockN / 2, kDqNumbers = 32;
  static constexpr int kFirstOwnBarrier = 2;  // the named barriers of a warpgroup's own threads
  static_assert(kBlockM == 64 && kBoxes == 2 && kShape.dq_stages() == 2 && kShape.dout_stages == 1);

  /// What a step computes of a tile.
  struct Tile {
    int number, head, m_block;  // of those that the CTA's kv tile meets
  };

  const sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.dout> dout = shared.dout();
  const sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.probs> probs = shared.probs();
  const sm90::Pipe<Flash3BackwardShared<kShape>::kLayout.ds> ds = shared.ds();
  sm90::RingPlace<1> once{};  // the place of these three, of which there is one buffer each

  __device__ __forceinline__ int first_key() const { return kOwnKeys * group; }
  /// LSE or delta of the thread's two rows.
  __device__ __forceinline__ float2 two_rows(int offset, int stage) const {
    const auto* numbers = reinterpret_cast<const float*>(bytes + offset) + stage * kBlockM;
    const int row = sm90::accumulator_entry(computed_again(thread), 0).row;
    return {numbers[row], numbers[row + 8]};
  }

  /// S = Q K^T or dP = dO V^T, of this warpgroup's keys
  __device__ __forceinline__ void multiply_own_keys(float (&d)[kScores], std::uint32_t queries,
                                                    std::uint32_t keys) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
    const std::uint32_t own = keys + 128u * static_cast<std::uint32_t>(first_key());
    const sm90::Operand left(kQTile, sm90::Major::k, queries), right(kKvTile, sm90::Major::k, own);
#pragma unroll
    for (int i = 0; i < kShape.head_dim / 16; ++i) {
      sm90::multiply<kOwnKeys, kType>(d, left.at(k_step(kQTile, sm90::Major::k, i)),
                                      right.at(k_step(kKvTile, sm90::Major::k, i)), i > 0);
    }
    sm90::commit_wgmma();
  }
  /// dV^T += dO^T P or dK^T += Q^T dS, of this warpgroup's columns
  __device__ __forceinline__ void multiply_own_columns(float (&d)[kSums], std::uint32_t queries,
                                                       std::uint32_t scores) const {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kScoreTile = kShape.ds_tile();
    const std::uint32_t own = queries + static_cast<std::uint32_t>(group * kQTile.panel_bytes());
    const sm90::Operand left(kQTile, sm90::Major::mn, own), right(kScoreTile, sm90::Major::k, scores);
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) {
      sm90::multiply<kBlockN, kType, sm90::Major::mn, sm90::Major::k>(
          d, left.at(k_step(kQTile, sm90::Major::mn, i)), right.at(k_step(kScoreTile, sm90::Major::k, i)),
          true);
    }
    sm90::commit_wgmma();
  }
  /// Puts this warp's queries of P or dS, rounded, into a tile of all keys.
  __device__ __forceinline__ void store_scores(const std::uint32_t (&pairs)[kScores / 2],
                                               std::uint32_t tile) const {
    const std::uint32_t own = tile + 128u * static_cast<std::uint32_t>(first_key());
    sm90::store_operand_transposed<kShape.ds_tile()>(pairs, own, 16 * warp(), computed_again(lane()));
    sm90::fence_async_proxy();
  }

  __device__ __forceinline__ void log_tile(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                           const Tile& tile, sm90::TileField field,
                                           const float (&values)[kScores], float factor) const {
    const TileLogEntry entry(args.log, tile.number, stream.batch, tile.head, tile.m_block, stream.n_block,
                             item.index(), group == 0 && thread == 0);
    sm90::log_visible<false>(entry, field, values, factor, args.band, stream.n_block * kBlockN + first_key(),
                             tile.m_block * kBlockM, thread);
  }

  /// P = exp(S - LSE), in place.
  __device__ __forceinline__ void make_probs(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                             const Tile& tile, float (&scores)[kScores]) const {
    if constexpr (kObserved) {
      log_tile(item, stream, tile, &DeviceTileState::scores, scores,
               args.exponent_scale < 0.0f ? -1.0f : 1.0f);
    }
    if (!stream.range.full(tile.m_block)) {
      mask_rows_backward(scores, args, tile.m_block * kBlockM, stream.n_block * kBlockN + first_key(),
                         thread);
    }
    const float2 lse = two_rows(shared.kLayout.lse, q.stage());
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      scores[i] =
          exp2_approx(score_exponent(scores[i], args.exponent_scale, -(i / 2 % 2 == 0 ? lse.x : lse.y)));
    }
  }
  /// dS = P (dP - delta), in place of dP.
  __device__ __forceinline__ void make_dscores(const float (&probs)[kScores],
                                               float (&dprobs)[kScores]) const {
    const float2 delta = two_rows(shared.kLayout.delta, 0);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      dprobs[i] = probs[i] * (dprobs[i] - (i / 2 % 2 == 0 ? delta.x : delta.y));
    }
  }

  /// One tile: load is the producer's part; compute is S, P beside dP, dS beside dV, and dQ, which is handed
  /// over beside dK.
  __device__ __forceinline__ void step(const Flash3KvItem& item, const Flash3Stream<kShape>& stream,
                                       const Tile& tile, float (&dk)[kSums], float (&dv)[kSums]) {
    float scores[kScores], dprobs[kScores];
    std::uint32_t pairs[kScores / 2];
    q.wait_full("Q");
    sm90::fence_wgmma();
    multiply_own_keys(scores, q.buffer(), shared.k().buffer());
    dout.wait_full(once, "dO");
    sm90::fence_wgmma();
    multiply_own_keys(dprobs, dout.buffer(), shared.v().buffer());
    sm90::wait_for_wgmma<1>();
    make_probs(item, stream, tile, scores);
    sm90::pack_operands<kType>(scores, pairs);
    if constexpr (kObserved) {
      sm90::log_pairs<kType>(TileLogEntry(args.log, tile.number, item.index()), &DeviceTileState::probs,
                             pairs, kBlockM, thread);
    }
    probs.wait_empty(once, "a free place for P");
    store_scores(pairs, probs.buffer());
    arrive_as_warp(probs.full());
    // With P a warp has said that it reads no dS of the tile before any more.
    probs.wait_full(once, "P of all warps");
    sm90::fence_wgmma();
    multiply_own_columns(dv, dout.buffer(), probs.buffer());
    sm90::wait_for_wgmma<1>();
    if constexpr (kObserved) log_tile(item, stream, tile, &DeviceTileState::dprobs, dprobs, 1.0f);
    make_dscores(scores, dprobs);
    sm90::pack_operands<kType>(dprobs, pairs);
    if constexpr (kObserved) {
      sm90::log_pairs<kType>(TileLogEntry(args.log, tile.number, item.index()), &DeviceTileState::dscores,
                             pairs, kBlockM, thread);
    }
    store_scores(pairs, ds.buffer());
    arrive_as_warp(ds.full());
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
    ds.wait_full(once, "dS of all warps");
    sm90::fence_wgmma();
    this->multiply_keys(dq, group, ds.buffer());
    multiply_own_columns(dk, q.buffer(), ds.buffer());
    sm90::wait_for_wgmma<2>();
    arrive_as_warp(probs.empty());
    sm90::arrive(dout.empty());
    sm90::wait_for_wgmma<1>();
    this->template put_dq<0, kBoxes>(dq);
    sm90::wait_for_wgmma<0>();
    q.release();
    once.advance();
  }

  /// dK or dV of this warpgroup's columns leaves through their panel of K or V, which nobody reads any more.
  __device__ __forceinline__ void leave(const float (&sums)[kSums], const CUtensorMap& map,
                                        std::uint32_t place, const Flash3Stream<kShape>& stream) const {
    constexpr sm90::PanelTile kKvTile = kShape.kv_tile();
    constexpr int kBoxKeys = 16;
    const std::uint32_t panel = place + static_cast<std::uint32_t>(group * kKvTile.panel_bytes());
    std::uint32_t pairs[kSums / 2];
    sm90::pack_operands<kType>(sums, pairs);
    sm90::store_operand_transposed<kKvTile>(pairs, panel, 16 * warp(), lane());
    sm90::fence_async_proxy();
    sm90::sync_named(kFirstOwnBarrier + group, 128);
    const int key = stream.n_block * kBlockN + kBoxKeys * thread;
    if (thread < kBlockN / kBoxKeys && key < args.band.seqlen_k && 64 * group < args.head_dim) {
      sm90::store_box(map, panel + static_cast<std::uint32_t>(128 * kBoxKeys * thread), 64 * group, key,
                      stream.kv_head(args), stream.batch);
    }
  }
  /// Adds them to the sums of all CTAs that share the kv tile, or stores them to the CTA's slot.
  __device__ __forceinline__ void add_to_sums(const float (&d)[kSums], const DeviceTensor& sums,
                                              const Flash3Stream<kShape>& stream) const {
    const int first = stream.n_block * kBlockN, first_col = 64 * group + 16 * warp();
    if constexpr (kShape.ordered) {
      float* const rows = sums.row<float>(this->entry_of_sums(stream), stream.kv_head(args), first);
      store_transposed_direct(d, rows + first_col, sums.row_stride, args.band.seqlen_k - first,
                              args.head_dim - first_col, lane());
    } else {
      sm90::add_transposed_direct(d, sums.row<float>(stream.batch, stream.kv_head(args), first) + first_col,
                                  sums.row_stride, args.band.seqlen_k - first, args.head_dim - first_col,
                                  lane());
    }
  }
  __device__ __forceinline__ void finish(const Flash3Stream<kShape>& stream, float (&dk)[kSums],
                                         float (&dv)[kSums]) const {
    sync_everyone();
    if constexpr (kShape.can_share()) {
      if (args.dk_sums.data) {
        add_to_sums(dk, args.dk_sums, stream);
        add_to_sums(dv, args.dv_sums, stream);
        return;
      }
    }
#pragma unroll
    for (float& x : dk) x *= args.softmax_scale;
    leave(dk, args.dk, shared.k().buffer(), stream);
    leave(dv, args.dv, shared.v().buffer(), stream);
    sm90::commit_stores();
    sm90::wait_for_store_reads<0>();
  }
};

/// A computing warpgroup.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_columns(const Flash3BackwardArguments& args,
                                                Flash3BackwardShared<kShape> shared,
                                                const unsigned char* bytes, int group, int thread) {
  using Columns = Flash3Columns<kType, kShape, kObserved>;
  Columns columns{{args, shared, bytes, group, thread}};
  const Flash3KvItem item;
  const Flash3Stream<kShape> stream(args, item.index());
  float dk[Columns::kSums] = {}, dv[Columns::kSums] = {};
  shared.k().wait_full(item.place(), "K");
  shared.v().wait_full(item.place(), "V");
  int tile = 0;  // how many there have been
  stream.each_tile(args, [&](int head, int m_block) {
    if (group == 0 && thread == 0) note_step(args.clock, tile, item.index());
    columns.step(item, stream, {tile, head, m_block}, dk, dv);
    ++tile;
  });
  columns.finish(stream, dk, dv);
}

}  // namespace tilescope::gpu::detail
