// SPDX-License-Identifier: Apache-2.0
// Flash3Split::specialised, warpgroup specialisation: one warpgroup makes S and P and sums dV, the other
// makes dP and dS and sums dK, each of all queries and columns. P^T and dS^T are left operands in registers
// of who made them, so that shared memory carries P once, number by number from a thread to its twin, and dS
// once, for dQ, of which each warpgroup sums half of the columns, 64 at a time. The first walks ahead: it has
// S and the exponentials of the next tile while the other has dS, dK and dQ of this one, and dO, in its
// single buffer, is used by both at once and early. All that they wait for are each other's data; there is no
// barrier of both in the walk.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/backward/consumer.cuh"

namespace tilescope::gpu::detail {

__device__ __forceinline__ void store_four(std::uint32_t address, const float* x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]),
               "f"(x[3])
               : "memory");
}
__device__ __forceinline__ float4 load_four(std::uint32_t address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

/// The same number, in a register that no WGMMA has written. ptxas takes a plain copy for the WGMMA's own
/// register, and lets whoever reads it wait for all WGMMAs in flight.
/// @param zero  0, which the compiler must not know
__device__ __forceinline__ float away_from_wgmma(float x, std::uint32_t zero) {
  return __uint_as_float(__float_as_uint(x) | zero);
}

/// What both warpgroups have.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, int kGroup>
struct Flash3Specialised : Flash3Consumer<kType, kShape, kGroup> {
  using Base = Flash3Consumer<kType, kShape, kGroup>;
  using Base::args, Base::shared, Base::thread, Base::kBoxes, Base::kSums;
  static constexpr int kPassNumbers = 32;  // 64 queries and 64 columns of dQ

  static_assert(kShape.tile == TileShape{64, 64} && kShape.dout_stages == 1);
  static_assert(kBoxes == 4 && kShape.dq_stages() == 2,
                "of two passes each has as many boxes as there are buffers");

  /// dQ = dS K: 64 of this warpgroup's columns
  __device__ __forceinline__ void multiply_keys(float (&dq)[kPassNumbers], int pass, std::uint32_t ds) const {
    Base::multiply_keys(dq, kShape.first_dq_panel(kGroup) + pass, ds);
  }
  /// Hands over a pass, two boxes.
  template <int kPass>
  __device__ __forceinline__ void put_pass(const float (&numbers)[kPassNumbers]) {
    this->template put_dq<2 * kPass, 2 * kPass + 2>(numbers);
  }
  /// Where a thread finds four numbers of P from its twin.
  __device__ __forceinline__ std::uint32_t probs_of(int four) const {
    return shared.probs().buffer() + static_cast<std::uint32_t>(16 * (128 * four + thread));
  }
  /// What both do at the end: dK or dV leaves through the place of K or V, which nobody reads any more; or is
  /// added to sums of several CTAs.
  __device__ __forceinline__ void finish(float (&sums)[kSums], const CUtensorMap& map,
                                         const DeviceTensor& added, std::uint32_t place) const {
    constexpr sm90::PanelTile kKvTile = kShape.kv_tile();
    this->sync_everyone();
    if constexpr (kShape.can_share()) {
      if (added.data) {
        const Flash3Stream<kShape> stream(args, computed_again(Flash3KvItem{}.index()));
        this->add_to_sums(sums, added, stream, stream.n_block * kShape.tile.block_n + 16 * this->warp());
        return;
      }
    }
    const std::uint32_t rows = place + this->warp_rows();
    sm90::stage_rows<kType, kKvTile, kShape.head_dim>(sums, rows, this->lane());
    sm90::fence_async_proxy();
    __syncwarp();
    if (this->lane() != 0) return;
    const Flash3Stream<kShape> stream(args, computed_again(Flash3KvItem{}.index()));
    const int warp_key = stream.n_block * kShape.tile.block_n + 16 * this->warp();
    if (warp_key < args.band.seqlen_k) {
      this->each_panel([&](std::uint32_t panel, int col) {
        sm90::store_box(map, rows + panel, col, warp_key, stream.kv_head(args), stream.batch);
      });
    }
    sm90::commit_stores();
    sm90::wait_for_store_reads<0>();
  }
};

/// The warpgroup that makes P and sums dV.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_probs(const Flash3BackwardArguments& args,
                                              Flash3BackwardShared<kShape> shared, const unsigned char* bytes,
                                              int thread, float (&dv)[kShape.head_dim / 2]) {
  using Role = Flash3Specialised<kType, kShape, 0>;
  Role role{{args, shared, bytes, 0, thread}};
  const Flash3KvItem item;
  const Flash3Stream<kShape> stream(args, item.index());
  const int first_key = stream.n_block * kShape.tile.block_n;
  const std::uint32_t zero = static_cast<std::uint32_t>(args.heads.kv) & 0x80000000u;
  float dq[Role::kPassNumbers], late_dq[Role::kPassNumbers];
  auto& q = role.q;
  const auto dout = shared.dout();
  const auto p = shared.probs();
  const auto ds = shared.ds();
  sm90::RingPlace<1> once, before;  // what is there once a tile: of this tile, and of the one before
  int tile = 0;                     // how many there have been
  shared.k().wait_full(item.place(), "K");
  shared.v().wait_full(item.place(), "V");
  stream.each_tile(args, [&](int head, int m_block) {
    if (thread == 0) note_step(args.clock, tile, item.index());
    const int first_query = m_block * kShape.tile.block_m;
    const std::uint32_t ds_before = ds.buffer_at(tile & 1 ^ 1);
    // load is the producer's part; compute: S, dQ of the tile before beside P, then dV
    float scores[Role::kScores];
    q.wait_full("Q");
    sm90::fence_wgmma();
    role.multiply_transposed(scores, shared.k().buffer(), q.buffer());
    if (tile > 1) role.template put_pass<1>(late_dq);
    if (tile > 0) ds.wait_full(before, "dS");
    sm90::fence_wgmma();
    role.multiply_keys(dq, 0, ds_before);  // of the first tile, what nobody uses
    sm90::wait_for_wgmma<1>();
    if constexpr (kObserved) {
      const TileLogEntry entry(args.log, tile, stream.batch, head, m_block, stream.n_block, item.index(),
                               thread == 0);
      sm90::log_visible(entry, &DeviceTileState::scores, scores, args.exponent_scale < 0.0f ? -1.0f : 1.0f,
                        args.band, first_key, first_query, thread);
    }
    if (!stream.range.full(m_block))
      mask_columns<kShape>(scores, masked_score(args), args, first_key, first_query, thread);
    role.exponentiate(scores);
    q.release();
    p.wait_empty(once, "a free place for P");
#pragma unroll
    for (int i = 0; i < Role::kScores / 4; ++i) store_four(role.probs_of(i), scores + 4 * i);
    sm90::arrive(p.full());
    std::uint32_t probs[Role::kScores / 2];
    sm90::pack_operands<kType>(scores, probs);
    if constexpr (kObserved) {
      sm90::log_pairs<kType>(TileLogEntry(args.log, tile, item.index()), &DeviceTileState::probs, probs,
                             kShape.tile.block_n, thread);
    }
    dout.wait_full(once, "dO");
    sm90::fence_wgmma();
    role.multiply_queries(dv, probs, dout.buffer());
    sm90::wait_for_wgmma<1>();
    if (tile > 0) role.template put_pass<0>(dq);
    sm90::fence_wgmma();
    role.multiply_keys(dq, 1, ds_before);
    sm90::wait_for_wgmma<1>();
    sm90::arrive(dout.empty());
    sm90::wait_for_wgmma<0>();
#pragma unroll
    for (int i = 0; i < Role::kPassNumbers; ++i) late_dq[i] = away_from_wgmma(dq[i], zero);
    if constexpr (kObserved) {
      sm90::log_masked(TileLogEntry(args.log, tile, item.index()), &DeviceTileState::accum, dv,
                       kShape.tile.block_n, thread);
    }
    before = once;
    once.advance();
    ++tile;
  });
  if (tile > 0) {  // dQ of the last tile
    if (tile > 1) role.template put_pass<1>(late_dq);
    ds.wait_full(before, "dS");
    const std::uint32_t last_ds = ds.buffer_at(tile & 1 ^ 1);
    sm90::fence_wgmma();
    role.multiply_keys(dq, 0, last_ds);
    sm90::wait_for_wgmma<0>();
    role.template put_pass<0>(dq);
    sm90::fence_wgmma();
    role.multiply_keys(dq, 1, last_ds);
    sm90::wait_for_wgmma<0>();
    role.template put_pass<1>(dq);
  }
}

/// The warpgroup that makes dS and sums dK.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_dscores(const Flash3BackwardArguments& args,
                                                Flash3BackwardShared<kShape> shared,
                                                const unsigned char* bytes, int thread,
                                                float (&dk)[kShape.head_dim / 2]) {
  using Role = Flash3Specialised<kType, kShape, 1>;
  Role role{{args, shared, bytes, 1, thread}};
  const Flash3KvItem item;
  const Flash3Stream<kShape> stream(args, item.index());
  const std::uint32_t zero = static_cast<std::uint32_t>(args.heads.kv) & 0x80000000u;
  float dq[Role::kPassNumbers], late_dq[Role::kPassNumbers];
  auto& q = role.q;
  const auto dout = shared.dout();
  const auto p = shared.probs();
  const auto ds = shared.ds();
  sm90::RingPlace<1> once;
  int tile = 0;
  shared.v().wait_full(item.place(), "V");
  shared.k().wait_full(item.place(), "K");
  stream.each_tile(args, [&](int, int m_block) {
    const std::uint32_t ds_now = ds.buffer_at(tile & 1), ds_before = ds.buffer_at(tile & 1 ^ 1);
    // compute: dP, dQ of the tile before beside dS, then dK and half of this tile's dQ
    float dprobs[Role::kScores];
    dout.wait_full(once, "dO");
    sm90::fence_wgmma();
    role.multiply_transposed(dprobs, shared.v().buffer(), dout.buffer());
    if (tile > 0) role.template put_pass<0>(late_dq);
    sm90::fence_wgmma();
    role.multiply_keys(dq, 1, ds_before);  // of the first tile, what nobody uses
    sm90::wait_for_wgmma<1>();
    if constexpr (kObserved) {
      sm90::log_visible(TileLogEntry(args.log, tile, item.index()), &DeviceTileState::dprobs, dprobs, 1.0f,
                        args.band, stream.n_block * kShape.tile.block_n, m_block * kShape.tile.block_m,
                        thread);
    }
#pragma unroll
    for (int i = 0; i < Role::kScores; i += 4) {
      const float2 delta = role.row_numbers(shared.kLayout.delta, 0, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) dprobs[i + e] -= e % 2 == 0 ? delta.x : delta.y;
    }
    sm90::arrive(dout.empty());
    p.wait_full(once, "P");
#pragma unroll
    for (int i = 0; i < Role::kScores; i += 4) {
      const float4 probs = load_four(role.probs_of(i / 4));
      dprobs[i] *= probs.x;
      dprobs[i + 1] *= probs.y;
      dprobs[i + 2] *= probs.z;
      dprobs[i + 3] *= probs.w;
    }
    sm90::arrive(p.empty());
    std::uint32_t dscores[Role::kScores / 2];
    sm90::pack_operands<kType>(dprobs, dscores);
    if constexpr (kObserved) {
      sm90::log_pairs<kType>(TileLogEntry(args.log, tile, item.index()), &DeviceTileState::dscores, dscores,
                             kShape.tile.block_n, thread);
    }
    // This buffer's dS, of two tiles before, was read by dQ. The other warpgroup has said so with P; the
    // warps of this one say it here.
    sm90::sync_named(2, 128);
    sm90::store_operand<kShape.ds_tile()>(dscores, ds_now + role.warp_rows(), 0, computed_again(role.lane()));
    sm90::fence_async_proxy();
    role.arrive_as_warp(ds.full_at(0));
    sm90::fence_wgmma();
    role.multiply_queries(dk, dscores, q.buffer());
    sm90::wait_for_wgmma<1>();
    if (tile > 0) role.template put_pass<1>(dq);
    ds.wait_full(once, "dS of all warps");
    sm90::fence_wgmma();
    role.multiply_keys(dq, 0, ds_now);
    sm90::wait_for_wgmma<1>();
    q.release();
    sm90::wait_for_wgmma<0>();
#pragma unroll
    for (int i = 0; i < Role::kPassNumbers; ++i) late_dq[i] = away_from_wgmma(dq[i], zero);
    if constexpr (kObserved) {
      sm90::log_masked(TileLogEntry(args.log, tile, item.index()), &DeviceTileState::accum, dk,
                       kShape.tile.block_n, thread);
    }
    once.advance();
    ++tile;
  });
  if (tile > 0) {
    role.template put_pass<0>(late_dq);
    sm90::fence_wgmma();
    role.multiply_keys(dq, 1, ds.buffer_at(tile & 1 ^ 1));
    sm90::wait_for_wgmma<0>();
    role.template put_pass<1>(dq);
  }
  // Sums are scaled when they are rounded.
  const float scale = kShape.can_share() && args.dk_sums.data ? 1.0f : args.softmax_scale;
#pragma unroll
  for (float& x : dk) x *= scale;
}

template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_specialised(const Flash3BackwardArguments& args,
                                                    Flash3BackwardShared<kShape> shared,
                                                    const unsigned char* bytes, int group, int thread) {
  float sums[kShape.head_dim / 2] = {};
  if (group == 0) {
    consume_probs<kType, kShape, kObserved>(args, shared, bytes, thread, sums);
  } else {
    consume_dscores<kType, kShape, kObserved>(args, shared, bytes, thread, sums);
  }
  const Flash3Specialised<kType, kShape, 0> either{{args, shared, bytes, group, thread}};
  either.finish(sums, group == 0 ? args.dv : args.dk, group == 0 ? args.dv_sums : args.dk_sums,
                group == 0 ? shared.v().buffer() : shared.k().buffer());
}

}  // namespace tilescope::gpu::detail
