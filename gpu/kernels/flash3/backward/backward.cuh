// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, fused backward (dK, dV and dQ in one pass): FlashAttention-3 for Hopper (sm_90a), fp16 and
// bf16.
//
// Against gpu:flash2-mma: as in the forward pass; besides, scores are computed transposed, so that P and dS
// are left operands of dV and dK, up to head_dim 128 straight from registers, and dQ leaves by the copy
// engine's additions, which a warp asks for that computes nothing. Source: FlashAttention-3,
// arXiv:2407.08608, section B.1; FlashAttention-2, arXiv:2307.08691, Algorithm 2.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/kernels/flash3/backward/producer.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mask.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/observe.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu {
namespace detail {

/// The same number, in a register that no WGMMA has written. ptxas takes a plain copy for the WGMMA's own
/// register, and lets whoever reads it wait for all WGMMAs in flight.
/// @param zero  0, which the compiler must not know
__device__ __forceinline__ float away_from_wgmma(float x, std::uint32_t zero) {
  return __uint_as_float(__float_as_uint(x) | zero);
}

/// Adds a warp's 16 keys, some columns of dK or dV, to the sums of all CTAs that share the kv tile.
template <Flash3BackwardShape kShape, int kCount>
__device__ __forceinline__ void add_to_sums(const float (&d)[kCount], const DeviceTensor& sums,
                                            const Flash3BackwardArguments& args,
                                            const Flash3Stream<kShape>& stream, int first_key, int first_col,
                                            int lane) {
  sm90::add_rows_direct(d, sums.row<float>(stream.batch, stream.kv_head(args), first_key) + first_col,
                        sums.row_stride, args.band.seqlen_k - first_key, args.head_dim - first_col, lane);
}

/// A warpgroup that computes; Flash3Split says what is its own.
/// @tparam kCols, kDqCols  of dK and dV, and of dQ, that it computes
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, int kCols, int kDqCols, bool kObserved>
__device__ __forceinline__ void consume_backward(const Flash3BackwardArguments& args,
                                                 Flash3BackwardShared<kShape> shared,
                                                 const unsigned char* bytes, int group, int thread) {
  using sm90::Major, sm90::k_step;
  constexpr int kBlockM = kShape.tile.block_m, kBlockN = kShape.tile.block_n;
  constexpr int kScoreQueries = kShape.score_queries(), kScores = kScoreQueries / 2;
  constexpr bool kByColumns = kShape.by_columns();
  static_assert(!kShape.dq_behind || (!kByColumns && !kShape.persistent && kShape.ds_stages == 2));
  constexpr int kEveryone = 1;  // the named barrier of all computing warpgroups
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile(), kDsTile = kShape.ds_tile(),
                            kDqTile = kShape.dq_box();
  const int lane = thread % 32, warp = thread / 32;  // of the warpgroup
  // Which of a shared barrier's phases is waited for next.
  [[maybe_unused]] std::uint32_t everyone_parity = 0;
  const auto sync_everyone = [&] {
    if constexpr (kShape.two_programs()) {  // a hardware barrier is reached at one instruction
      __syncwarp();
      if (lane == 0) sm90::arrive(shared.everyone());
      sm90::wait(shared.everyone(), everyone_parity, "all computing warps");
      everyone_parity ^= 1;
    } else {
      sm90::sync_named(kEveryone, 128 * kShape.consumers());
    }
  };
  // A warp at once: its lanes have read, or written, each for itself.
  const auto arrive_as_warp = [&](std::uint32_t barrier) {
    __syncwarp();
    if (lane == 0) sm90::arrive(barrier);
  };
  // A lane at once, of what threads read with LSE or delta: racecheck knows no other order of those.
  const auto arrive_as_lane = [](std::uint32_t barrier) { sm90::arrive(barrier); };

  // What is this warpgroup's: keys (rows of a panel of 128 bytes each), queries of the scores, columns.
  const std::uint32_t key_bytes = 128u * static_cast<std::uint32_t>(kShape.first_key(group));
  const int first_score_query = kShape.first_score_query(group);
  const std::uint32_t query_bytes = 128u * static_cast<std::uint32_t>(first_score_query);
  const int first_panel = kShape.first_panel(group), first_dq_panel = kShape.first_dq_panel(group);
  const auto panels = [](const sm90::PanelTile& tile, int count) {
    return static_cast<std::uint32_t>(count * tile.panel_bytes());
  };
  const std::uint32_t warp_rows = key_bytes + 16u * 128u * static_cast<std::uint32_t>(warp);

  sm90::RingPlace<kShape.q_stages> q;
  sm90::RingPlace<kShape.dout_stages> dout;
  constexpr int kBoxes = kDqCols / kDqTile.cols, kBoxNumbers = 64 * kDqTile.cols / 128;  // of a thread
  constexpr int kBoxesNow = kShape.dq_late && kBoxes > kShape.dq_stages() ? kShape.dq_stages() : kBoxes;
  DqRound<kBoxes, kShape.dq_stages()> dq_round;
  sm90::RingPlace<kShape.ds_stages> ds;

  // S^T = K Q^T or dP^T = V dO^T: this warpgroup's keys and queries
  const auto multiply_transposed = [&](float(&d)[kScores], std::uint32_t keys, std::uint32_t queries) {
    const sm90::Operand left(kKvTile, Major::k, keys + key_bytes),
        right(kQTile, Major::k, queries + query_bytes);
#pragma unroll
    for (int i = 0; i < kShape.head_dim / 16; ++i) {
      sm90::multiply<kScoreQueries, kType>(d, left.at(k_step(kKvTile, Major::k, i)),
                                           right.at(k_step(kQTile, Major::k, i)), i > 0);
    }
    sm90::commit_wgmma();
  };
  // dV += P^T dO or dK += dS^T Q: this warpgroup's keys and columns
  const auto multiply_queries = [&](float(&d)[kCols / 2], const std::uint32_t* registers, std::uint32_t keys,
                                    std::uint32_t queries) {
    const sm90::Operand left(kDsTile, Major::k, keys),
        right(kQTile, Major::mn, queries + panels(kQTile, first_panel));
#pragma unroll
    for (int i = 0; i < kBlockM / 16; ++i) {
      const std::uint64_t rows = right.at(k_step(kQTile, Major::mn, i));
      if constexpr (kByColumns) {
        sm90::multiply<kCols, kType, Major::k, Major::mn>(d, left.at(k_step(kDsTile, Major::k, i)), rows,
                                                          true);
      } else {
        sm90::multiply<kCols, kType, Major::mn>(d, registers + 4 * i, rows, true);
      }
    }
    sm90::commit_wgmma();
  };
  // dQ = dS K: 64 queries and some columns, over all keys
  const auto multiply_keys = [&](float(&dq)[kDqCols / 2], std::uint32_t ds) {
    const sm90::Operand left(kDsTile, Major::mn, ds + (kShape.dq_by_queries() ? panels(kDsTile, group) : 0)),
        right(kKvTile, Major::mn, shared.k() + panels(kKvTile, first_dq_panel));
#pragma unroll
    for (int i = 0; i < kBlockN / 16; ++i) {
      sm90::multiply<kDqCols, kType, Major::mn, Major::mn>(dq, left.at(k_step(kDsTile, Major::mn, i)),
                                                           right.at(k_step(kKvTile, Major::mn, i)), i > 0);
    }
    sm90::commit_wgmma();
  };
  // The same of a dS that both warpgroups may have stored long ago.
  const auto multiply_stored_ds = [&](float(&dq)[kDqCols / 2],
                                      const sm90::RingPlace<kShape.ds_stages>& place) {
    sm90::wait(shared.ds_full(place.stage), place.full_parity(), "dS");
    sm90::fence_wgmma();
    multiply_keys(dq, shared.ds(place.stage));
  };
  // A warp puts its 16 queries, a box of columns after the other, where another warp sends them from.
  // Pairs of odd rows go in another order, since they would meet those of even rows in the same banks.
  const auto put_dq = [&]<int kFrom, int kTo>(const float* numbers) {
    const int this_lane = computed_again(lane), row = this_lane / 4;
    const bool odd = row & 1;
    const std::uint32_t mine = kDqTile.offset(16 * warp + row, 2 * (this_lane % 4) + (odd ? 16 : 0));
#pragma unroll
    for (int box = kFrom; box < kTo; ++box) {
      const int stage = dq_round.stage(box);
      sm90::wait(shared.dq_empty(group, stage), dq_round.empty_parity(box), "a free dQ buffer");
      const std::uint32_t pairs = shared.dq(group, stage) + mine;
#pragma unroll
      for (int i = 0; i < kDqTile.cols / 4; ++i) {
        const int half = i % 2, eight = i / 2 % 4, panel = i / 8;  // rows, columns, 32 columns
        const float* panel_pairs = numbers + kBoxNumbers * (box - kFrom) + 16 * panel + 2 * half;
        const float *even_pair = panel_pairs + 4 * eight, *odd_pair = panel_pairs + 4 * (eight ^ 2);
        sm90::store_pair((pairs ^ static_cast<std::uint32_t>(32 * eight)) + 8 * 128 * half +
                             static_cast<std::uint32_t>(panel * kDqTile.panel_bytes()),
                         odd ? odd_pair[0] : even_pair[0], odd ? odd_pair[1] : even_pair[1]);
      }
      sm90::fence_async_proxy();
      arrive_as_warp(shared.dq_full(group, stage));
    }
    if constexpr (kTo == kBoxes) dq_round.advance();
  };
  constexpr bool kDqLate = kBoxesNow < kBoxes, kLeaveByDq = kShape.persistent && !kShape.leave_by_one_ds();
  float late_dq[kDqLate ? (kBoxes - kBoxesNow) * kBoxNumbers : 1];
  const std::uint32_t zero = static_cast<std::uint32_t>(args.heads.kv) & 0x80000000u;
  const auto put_late_dq = [&] { put_dq.template operator()<kBoxesNow, kBoxes>(late_dq); };

  each_item<kShape>(args, [&](const Flash3KvItem& item) {
    const Flash3Stream<kShape> stream(args, item.index());
    const int first_key = stream.n_block * kBlockN + kShape.first_key(group);
    const int tiles = args.heads_of_cta * stream.range.count();
    int tile = 0;  // how many there have been
    float dk[kCols / 2] = {}, dv[kCols / 2] = {};
    sm90::wait(shared.k_full(), item.full_parity(), "K");
    sm90::wait(shared.v_full(), item.full_parity(), "V");
    stream.each_tile(args, [&](int head, int m_block) {
      if (group == 0 && thread == 0) note_step(args.clock, tile, item.index());
      const bool first = tile++ == 0;
      // What goes round alike needs no place of its own.
      if constexpr (kShape.dout_stages == kShape.q_stages) dout = {q.stage, q.round};
      if constexpr (kShape.ds_stages == kShape.q_stages) ds = {q.stage, q.round};
      const auto this_ds = ds;
      const std::uint32_t ds_tile = shared.ds(ds.stage), probs_tile = shared.probs(ds.stage);
      if constexpr (kShape.ds_stages != kShape.q_stages) ds.advance();
      const int first_query = m_block * kBlockM, score_query = first_query + first_score_query;
      const auto* lse =
          reinterpret_cast<const float*>(bytes + shared.kLayout.lse) + q.stage * kBlockM + first_score_query;
      const auto* delta = reinterpret_cast<const float*>(bytes + shared.kLayout.delta) +
                          dout.stage * kBlockM + first_score_query;

      // load is the producer's part; compute: S and dP, P beside dP, then dS
      float scores[kScores], dprobs[kScores];
      sm90::wait(shared.q_full(q.stage), q.full_parity(), "Q");
      sm90::fence_wgmma();
      multiply_transposed(scores, shared.k(), shared.q(q.stage));
      sm90::wait(shared.dout_full(dout.stage), dout.full_parity(), "dO");
      sm90::fence_wgmma();
      multiply_transposed(dprobs, shared.v(), shared.dout(dout.stage));
      if constexpr (kDqLate) {
        if (!first) put_late_dq();
      }
      // Asked early, since the answer takes a while.
      const auto next_q = q.next();
      const bool q_ready =
          tile == tiles || sm90::phase_was_over(shared.q_full(next_q.stage), next_q.full_parity());
      sm90::wait_for_wgmma<1>();
      const auto log_tile = [&](sm90::TileField field, const float(&values)[kScores], float factor) {
        const TileLogEntry entry(args.log, tile - 1, stream.batch, head, m_block, stream.n_block,
                                 item.index(), group == 0 && thread == 0);
        sm90::log_visible(entry, field, values, factor, args.band, first_key, score_query, thread);
      };
      if constexpr (kObserved) {
        log_tile(&DeviceTileState::scores, scores, args.exponent_scale < 0.0f ? -1.0f : 1.0f);
      }
      if (kObserved || !stream.range.full(m_block)) {
        const float masked = args.exponent_scale < 0.0f ? -kMinusInfinity : kMinusInfinity;
        sm90::mask_transposed(scores, masked, args.band, first_key, score_query, computed_again(thread));
      }
#pragma unroll
      for (int i = 0; i < kScores; i += 4) {  // two queries of two keys
        const float2 shift = *reinterpret_cast<const float2*>(lse + 2 * i + 2 * (lane % 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[i + e] = exp2_approx(
              score_exponent(scores[i + e], args.exponent_scale, -(e % 2 == 0 ? shift.x : shift.y)));
        }
      }
      std::uint32_t probs[kScores / 2], dscores[kScores / 2];
      // P and dS go to shared memory for those who need what both warpgroups have of them. Who reads the
      // other buffer is past it when all meet again; with a single one they must meet before it is written,
      // too.
      if constexpr (kByColumns) {  // all queries' P of these keys
        if constexpr (kShape.ds_stages == 1) sync_everyone();
        sm90::pack_operands<kType>(scores, probs);
        sm90::store_operand<kDsTile>(probs, probs_tile + warp_rows, first_score_query, computed_again(lane));
        sm90::fence_async_proxy();
        sync_everyone();
      }
      // A place where control flow meets: ptxas would move the wait for dP above the exponentials if the two
      // stood in one block.
      if (!q_ready) sm90::wait(shared.q_full(next_q.stage), next_q.full_parity(), "the next Q");
      sm90::wait_for_wgmma<0>();
      const auto begin_dv = [&] { multiply_queries(dv, probs, probs_tile, shared.dout(dout.stage)); };
      if constexpr (kByColumns) {
        sm90::fence_wgmma();
        begin_dv();
      } else {
        sm90::pack_operands<kType>(scores, probs);
      }
      if constexpr (kObserved) log_tile(&DeviceTileState::dprobs, dprobs, 1.0f);
#pragma unroll
      for (int i = 0; i < kScores; i += 4) {
        const float2 row = *reinterpret_cast<const float2*>(delta + 2 * i + 2 * (lane % 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          dprobs[i + e] = scores[i + e] * (dprobs[i + e] - (e % 2 == 0 ? row.x : row.y));
        }
      }
      sm90::pack_operands<kType>(dprobs, dscores);
      if constexpr (kObserved) {
        const TileLogEntry entry(args.log, tile - 1, item.index());
        sm90::log_pairs<kType>(entry, &DeviceTileState::probs, probs, kBlockN, thread);
        sm90::log_pairs<kType>(entry, &DeviceTileState::dscores, dscores, kBlockN, thread);
      }

      const auto release_dout = [&] {
        arrive_as_lane(shared.dout_empty(dout.stage));
        dout.advance();
      };
      const auto store_ds = [&] {
        sm90::store_operand<kDsTile>(dscores, ds_tile + warp_rows, first_score_query, computed_again(lane));
        sm90::fence_async_proxy();
      };
      float dq[kDqCols / 2];
      if constexpr (kShape.dq_behind) {
        // The other warpgroup stored its part of the last dS a step ago, and has read the one before that.
        sm90::wait(shared.ds_empty(this_ds.stage), this_ds.empty_parity(), "a free dS buffer");
        store_ds();
        arrive_as_warp(shared.ds_full(this_ds.stage));
        // A first tile multiplies its own dS, for nothing: in a branch, the WGMMAs would be serialised
        // (C7512).
        multiply_stored_ds(dq, first ? this_ds : this_ds.before());
        begin_dv();
        multiply_queries(dk, dscores, ds_tile, shared.q(q.stage));
        sm90::wait_for_wgmma<2>();
        if (!first) {
          arrive_as_warp(shared.ds_empty(this_ds.before().stage));
          put_dq.template operator()<0, kBoxes>(dq);
        }
        sm90::wait_for_wgmma<1>();
        release_dout();
      } else {
        if constexpr (kShape.ds_stages == 1 && !kByColumns) sync_everyone();
        if (kLeaveByDq && first) {  // both buffers of dS were written by all
          if (lane == 0) sm90::wait_for_store_reads<0>();
          sync_everyone();
        }
        store_ds();
        // After the next barrier the buffer through which dK and dV before left is written again.
        if (kShape.persistent && !kLeaveByDq && first && lane == 0) sm90::wait_for_store_reads<0>();
        constexpr bool kDvFirst = !kByColumns && !kShape.dq_first;
        if constexpr (kDvFirst) {
          sm90::fence_wgmma();
          begin_dv();
        }
        sync_everyone();
        if constexpr (!kDvFirst) sm90::fence_wgmma();
        multiply_keys(dq, ds_tile);
        if constexpr (kShape.dq_first) begin_dv();
        multiply_queries(dk, dscores, ds_tile, shared.q(q.stage));
        sm90::wait_for_wgmma<2>();
        if constexpr (!kShape.dq_first) {
          release_dout();
          sm90::wait_for_wgmma<1>();
        }
        put_dq.template operator()<0, kBoxesNow>(dq);
        if constexpr (kShape.dq_first) {
          sm90::wait_for_wgmma<1>();
          release_dout();
        }
      }
      sm90::wait_for_wgmma<0>();
      if constexpr (kDqLate) {
#pragma unroll
        for (int i = 0; i < (kBoxes - kBoxesNow) * kBoxNumbers; ++i) {
          late_dq[i] = away_from_wgmma(dq[kBoxesNow * kBoxNumbers + i], zero);
        }
      }
      arrive_as_lane(shared.q_empty(q.stage));
      q.advance();
      if constexpr (kObserved) {
        const TileLogEntry entry(args.log, tile - 1, item.index());
        sm90::log_masked(entry, &DeviceTileState::accum, dk, kBlockN, thread);
        sm90::log_masked(entry, &DeviceTileState::accum, dv, kBlockN, thread);
      }
    });

    if constexpr (kDqLate) {
      if (tiles > 0) put_late_dq();
    }
    if constexpr (kShape.dq_behind) {
      if (tiles > 0) {
        float dq[kDqCols / 2];
        multiply_stored_ds(dq, ds.before());
        sm90::wait_for_wgmma<0>();
        put_dq.template operator()<0, kBoxes>(dq);
      }
    }

    // finish: K and V make room for dK and dV once nobody reads them; or, where the next K and V may come,
    // the last dS; or both of dS for dK, and dQ's boxes for dV
    if constexpr (kLeaveByDq) {
#pragma unroll
      for (int stage = 0; stage < kShape.dq_stages(); ++stage) {
        sm90::wait(shared.dq_empty(group, stage), dq_round.empty_parity(stage), "dQ to have left");
      }
    }
    sync_everyone();
    if (kShape.persistent && lane == 0) sm90::arrive(shared.kv_empty());
    if constexpr (kShape.can_share()) {
      if (args.dk_sums.data) {
        const int warp_key = first_key + 16 * warp;
        add_to_sums(dk, args.dk_sums, args, stream, warp_key, 64 * first_panel, lane);
        add_to_sums(dv, args.dv_sums, args, stream, warp_key, 64 * first_panel, lane);
        return;
      }
    }

    const std::uint32_t last_ds = shared.ds(kLeaveByDq ? 0 : ds.stage ^ 1);
    const std::uint32_t dk_tile = kShape.persistent ? last_ds : shared.k();
    const std::uint32_t dv_tile = kLeaveByDq          ? shared.dq(0, 0)
                                  : kShape.persistent ? last_ds + kKvTile.bytes()
                                                      : shared.v();
    if (kShape.persistent && tiles == 0) {  // those of the kv tile before may be there still
      if (lane == 0) sm90::wait_for_store_reads<0>();
      __syncwarp();
    }
#pragma unroll
    for (float& x : dk) x *= args.softmax_scale;
    const std::uint32_t my_rows = panels(kKvTile, first_panel) + warp_rows;
    sm90::stage_rows<kType, kKvTile, kCols>(dk, dk_tile + my_rows, lane);
    sm90::stage_rows<kType, kKvTile, kCols>(dv, dv_tile + my_rows, lane);
    sm90::fence_async_proxy();
    __syncwarp();
    const int warp_key = first_key + 16 * warp;
    if (lane == 0) {
      if (warp_key < args.band.seqlen_k) {
        for (int panel = 0; panel < (kCols + 63) / 64; ++panel) {
          const std::uint32_t rows = panels(kKvTile, panel) + my_rows;
          const int col = 64 * (first_panel + panel);
          if (col >= args.head_dim) break;
          sm90::store_box(args.dk, dk_tile + rows, col, warp_key, stream.kv_head(args), stream.batch);
          sm90::store_box(args.dv, dv_tile + rows, col, warp_key, stream.kv_head(args), stream.batch);
        }
      }
      sm90::commit_stores();
      if (!kShape.persistent) sm90::wait_for_store_reads<0>();
    }
  });
  if (kShape.persistent && lane == 0) sm90::wait_for_store_reads<0>();
}

/// The same of Flash3Split::specialised: specialised.cuh.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume_specialised(const Flash3BackwardArguments& args,
                                                    Flash3BackwardShared<kShape> shared,
                                                    const unsigned char* bytes, int group, int thread);

}  // namespace detail

/// CTA: one kv tile of one key/value head; Flash3BackwardShape::persistent: one after the other. Grid:
/// args.grid, or as many as run at once. Dynamic shared memory: Flash3BackwardLayout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_dkdvdq(const __grid_constant__ Flash3BackwardArguments args) {
  constexpr Flash3BackwardShape kShape = Choice::shape;
  static_assert(Flash3BackwardLayout(kShape).end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3BackwardShared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  sm90::let_next_kernel_begin();
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map :
         {&args.k, &args.v, &args.q, &args.dout, &args.dq_accum, &args.dk, &args.dv}) {
      sm90::prefetch_map(*map);
    }
    sm90::init_barrier(shared.k_full(), 1);
    sm90::init_barrier(shared.v_full(), 1);
    sm90::init_barrier(shared.kv_empty(), kShape.warps());
    for (int stage = 0; stage < kShape.q_stages; ++stage) {
      sm90::init_barrier(shared.q_full(stage), 1 + 32);  // the copies, and who brings LSE
      sm90::init_barrier(shared.q_empty(stage), 32 * kShape.warps());
    }
    for (int stage = 0; stage < kShape.dout_stages; ++stage) {
      sm90::init_barrier(shared.dout_full(stage), 1 + 32);
      sm90::init_barrier(shared.dout_empty(stage), 32 * kShape.warps());
    }
    sm90::init_barrier(shared.everyone(), kShape.warps());
    for (int stage = 0; stage < kShape.ds_stages; ++stage) {
      sm90::init_barrier(shared.ds_full(stage), kShape.specialised() ? 4 : kShape.warps());  // who stores dS
      sm90::init_barrier(shared.ds_empty(stage), kShape.warps());
    }
    if constexpr (kShape.specialised()) {
      sm90::init_barrier(shared.probs_full(), 128);
      sm90::init_barrier(shared.probs_empty(), 128);
    }
    for (int group = 0; group < kShape.consumers(); ++group) {
      for (int stage = 0; stage < kShape.dq_stages(); ++stage) {
        sm90::init_barrier(shared.dq_full(group, stage), 4);
        sm90::init_barrier(shared.dq_empty(group, stage), 1);
      }
    }
    sm90::fence_barrier_init();
  }
  __syncthreads();
  sm90::wait_for_kernel_before();
  if (warpgroup == 0) {
    const int thread = computed_again(static_cast<int>(threadIdx.x));
    sm90::give_up_registers<kShape.producer_registers()>();
    const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
    if (thread == 0) detail::produce_tiles<kShape>(args, shared);
    if (warp == 1) detail::produce_lse_and_delta<kShape>(args, shared, shared_bytes);
    if (thread == 64) detail::send_dq<kShape, 0>(args, shared);
    if (thread == 96) detail::send_dq<kShape, 1>(args, shared);
    if (thread == 127) watchdog.watch(kShape.threads() - 128);
  } else {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    sm90::take_registers<kShape.consumer_registers()>();
    if constexpr (kShape.specialised()) {
      detail::consume_specialised<kType, kShape, kObserved>(args, shared, shared_bytes, warpgroup - 1,
                                                            thread);
    } else if (!kShape.two_programs() || warpgroup == 1) {
      detail::consume_backward<kType, kShape, kShape.own_cols(0), kShape.dq_cols(0), kObserved>(
          args, shared, shared_bytes, warpgroup - 1, thread);
    } else {
      detail::consume_backward<kType, kShape, kShape.own_cols(1), kShape.dq_cols(1), kObserved>(
          args, shared, shared_bytes, 1, thread);
    }
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
