// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, forward: FlashAttention-3 for Hopper (sm_90a), fp16 and bf16, head_dim a multiple of 8 up to
// 256, masks, grouped heads.
//
// Against gpu:flash2-mma: the copy engine (TMA) loads whole tiles for one thread that
// does nothing else; warpgroups multiply by wgmma straight from shared memory, without registers or
// instructions for the operands; WGMMAs run while the same warpgroup (next S beside this P V) and the
// others (ping-pong) are at their softmax; persistent CTAs take one tile after the other, and load the next
// while they end this one. That should win about twice the rate: 360 TFLOP/s were 0.4 of the tensor cores at
// head_dim 128; 752 are 0.86 of them at the clock that power leaves (1.58 GHz). The rest is a warpgroup's
// chain of one step. Source: FlashAttention-3, arXiv:2407.08608, Algorithms 1 and 2.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/producer.cuh"
#include "gpu/kernels/flash3/forward/softmax.cuh"
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

/// A warp's 16 rows of O, from row `query` on, and their LSE.
template <sm90::WgmmaType kType, Flash3ForwardShape kShape>
__device__ __forceinline__ void store_rows(const Flash3ForwardArguments& args, Flash3Shared<kShape> shared,
                                           const Flash3Item& item, const Flash3Rows& rows,
                                           const float (&out)[kShape.head_dim / 2], int query, int warp,
                                           int lane) {
  if (lane % 4 == 0) {
    float* lse = args.lse + item.batch * args.lse_batch_stride + item.head * args.lse_head_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + 8 * half + lane / 4;
      if (row < args.band.seqlen_q) lse[row] = rows.log_sum_exp(half, args.softmax_scale);
    }
  }
  if constexpr (kShape.output == Flash3Output::direct) {
    sm90::store_rows_direct<kType>(out, args.out_rows.row(item.batch, item.head, query),
                                   args.out_rows.row_stride, args.band.seqlen_q - query, args.head_dim, lane);
  } else {
    constexpr sm90::PanelTile kTile = kShape.out_tile();
    const std::uint32_t tile = shared.base + Flash3Shared<kShape>::kLayout.out + warp * kTile.bytes();
    if (lane == 0) sm90::wait_for_store_reads<0>();
    __syncwarp();
    sm90::stage_rows<kType, kTile, kShape.head_dim>(out, tile, lane);
    sm90::fence_async_proxy();
    __syncwarp();
    if (lane == 0 && query < args.band.seqlen_q) {
#pragma unroll
      for (int panel = 0; panel < kTile.panels(); ++panel) {
        sm90::store_box(args.out, tile + panel * kTile.panel_bytes(), panel * kTile.panel_cols(), query,
                        item.head, item.batch);
      }
      sm90::commit_stores();
    }
    __syncwarp();
  }
}

/// The same for rows that see no key.
template <sm90::WgmmaType kType>
__device__ __forceinline__ void store_empty_rows(const Flash3ForwardArguments& args, const Flash3Item& item,
                                                 int query, int lane) {
  for (int row = query; row < min(query + 16, args.band.seqlen_q); ++row) {
    std::uint16_t* out = args.out_rows.row(item.batch, item.head, row);
    for (int col = lane; col < args.head_dim; col += 32) out[col] = 0;
    if (lane == 0) {
      args.lse[item.batch * args.lse_batch_stride + item.head * args.lse_head_stride + row] = kMinusInfinity;
    }
  }
}

__device__ __forceinline__ void store_number(std::uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ float load_number(std::uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

/// A warpgroup that computes 64 rows of each tile, or of its part of the tile's keys.
/// @tparam kObserved  logs the tiles that it visits. It masks each of them, so that every maximum is exact:
/// its P is relative to a row's own maximum, as the tile's replay has it. Keys are then not split.
template <sm90::WgmmaType kType, Flash3ForwardShape kShape, bool kObserved>
__device__ __forceinline__ void consume(const Flash3ForwardArguments& args, Flash3Shared<kShape> shared,
                                        const Flash3Item* items, int group, int thread) {
  constexpr int kBlockN = kShape.tile.block_n, kHeadDim = kShape.head_dim;
  constexpr bool kSplits = kShape.splits_keys && !kObserved;
  if (kShape.splits_keys && kObserved && group > 0) return;
  constexpr int kKeys = kSplits ? kShape.own_keys() : kBlockN, kScores = kKeys / 2, kOutputs = kHeadDim / 2;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKvTile = kShape.kv_tile();
  constexpr bool kKept = kShape.scores == Flash3Scores::kept;
  constexpr int kFirstPingPong = 1, kFirstVote = 8;  // of the named barriers
  using sm90::Major;
  const int lane = thread % 32;

  // Ping-pong: a warpgroup waits for its own barrier and, its WGMMAs issued, arrives at the next one's.
  const auto await_ping_pong = [&] {
    if constexpr (kShape.ping_pong) sm90::sync_named(kFirstPingPong + group, 256);
  };
  const auto pass_ping_pong = [&] {
    if constexpr (kShape.ping_pong)
      sm90::arrive_named(kFirstPingPong + (group + 1) % kShape.consumers(), 256);
  };
  if (group == kShape.consumers() - 1) pass_ping_pong();

  // A warp arrives once it is done with a buffer: its WGMMAs have waited for it ...
  const auto release = [&](std::uint32_t empty) {
    if (lane == 0) sm90::arrive(empty);
  };

  sm90::RingPlace<kShape.q_stages> q;
  sm90::RingPlace<kShape.kv_stages> k, v;
  sm90::RingPlace<1> part;
  const int row_group = kShape.splits_keys ? 0 : group, own_key = kSplits ? kKeys * group : 0;
  const std::uint32_t own_key_bytes = 128u * static_cast<std::uint32_t>(own_key);
  const auto q_buffer = [&] { return q.stage * kShape.row_groups() + row_group; };
  float scores[kScores];
  std::uint32_t probs[kScores / 2];
  float out[kOutputs];
  Flash3Rows rows;
  Flash3Item item{};
  TileRange range;
  const auto first_query = [&](const Flash3Item& of) { return of.template first_query<kShape>(group); };

  const auto multiply_scores = [&](int k_stage) {
    const sm90::Operand left(kQTile, Major::k, shared.q(q_buffer()));
    const sm90::Operand right(kKvTile, Major::k, shared.k(k_stage) + own_key_bytes);
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      sm90::multiply<kKeys, kType>(scores, left.at(k_step(kQTile, Major::k, step)),
                                   right.at(k_step(kKvTile, Major::k, step)), step > 0);
    }
    sm90::commit_wgmma();
  };
  const auto multiply_values = [&] {
    const sm90::Operand right(kKvTile, Major::mn, shared.v(v.stage) + own_key_bytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      sm90::multiply<kHeadDim, kType, Major::mn>(out, probs + 4 * step,
                                                 right.at(k_step(kKvTile, Major::mn, step)), true);
    }
    sm90::commit_wgmma();
  };
  // ... and each of its lanes has read the item that came with Q.
  const auto release_q = [&] {
    sm90::arrive(shared.q_empty(q_buffer()));
    q.advance();
  };
  const auto release_k = [&] {
    release(shared.k_empty(k.stage));
    k.advance();
  };
  const auto release_v = [&] {
    release(shared.v_empty(v.stage));
    v.advance();
  };
  // Steps [full_begin, full_end) of the walk need no mask; this warpgroup's rows see those in [own_begin,
  // own_end).
  constexpr bool kSkips = kShape.skips && !kObserved;
  static_assert(!kSkips || !kShape.ping_pong);
  int full_begin = 0, full_end = 0, own_begin = 0, own_end = 0;
  const auto needs_mask = [&](int step) { return step < full_begin || step >= full_end; };
  const auto open_entry = [&](const Flash3Item& of, int step, int n_block) {
    return TileLogEntry(args.log, step, of.batch, of.head, of.block, n_block, of.index(),
                        group == 0 && thread == 0);
  };
  const auto mask_tile = [&](int step) {
    const int n_block = scan_tile(args.scan, range, item.wave_parity(), step);
    sm90::mask_scores(scores, args.score_sign, args.band, first_query(item), n_block * kBlockN + own_key,
                      thread);
    if constexpr (kObserved) {
      sm90::log_masked(open_entry(item, step, n_block), &DeviceTileState::scores, scores,
                       args.band.seqlen_q - first_query(item), thread);
    }
  };
  const auto log_softmax = [&](int step) {
    const TileLogEntry entry(args.log, step, item.index());
    const int rows_inside = args.band.seqlen_q - first_query(item);
    sm90::log_rows(entry, rows.max, rows.sum, rows_inside, thread);
    sm90::log_pairs<kType>(entry, &DeviceTileState::probs, probs, rows_inside, thread);
  };
  const auto log_output = [&](const Flash3Item& of, int step) {
    sm90::log_masked(TileLogEntry(args.log, step, of.index()), &DeviceTileState::accum, out,
                     args.band.seqlen_q - first_query(of), thread);
  };
  /// Gives back what this warpgroup does not need. It waits for it all the same: an arrival belongs to a
  /// phase.
  const auto skip_k = [&](int count) {
    for (int i = 0; i < count; ++i) {
      sm90::wait(shared.k_full(k.stage), k.full_parity(), "a K that is skipped");
      release_k();
    }
  };
  const auto skip_v = [&](int count) {
    for (int i = 0; i < count; ++i) {
      sm90::wait(shared.v_full(v.stage), v.full_parity(), "a V that is skipped");
      release_v();
    }
  };
  const auto skip_tiles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      skip_k(1);
      skip_v(1);
    }
  };
  /// The item that came with Q. True: this warpgroup has something to compute of it.
  const auto look_at_item = [&] {
    sm90::wait(shared.q_full(q_buffer()), q.full_parity(), "Q");
    item = items[q_buffer()];
    if (item.block < 0) return false;
    range = kv_tiles(args.band, kShape.tile, item.block);
    if (range.empty()) return false;
    // The mask gives scores their sign.
    if (kObserved || args.score_sign < 0.0f) range.full_end = range.full_begin;
    const bool down = scan_tile(args.scan, range, item.wave_parity(), 0) != range.begin;
    full_begin = down ? range.end - range.full_end : range.full_begin - range.begin;
    full_end = full_begin + range.full_end - range.full_begin;
    own_end = range.count();
    if constexpr (kSkips) {
      const TileRange own =
          kv_tiles(args.band, {sm90::kWarpgroupRows, kBlockN}, first_query(item) / sm90::kWarpgroupRows);
      const bool none = own.empty() || first_query(item) >= args.band.seqlen_q;
      own_begin = none ? 0 : down ? range.end - own.end : own.begin - range.begin;
      own_end = none ? 0 : own_begin + own.count();
    }
    return own_end > own_begin;
  };
  /// The next item with something to compute; the others' rows are 0. False: there are no more.
  const auto next_item = [&] {
    while (!look_at_item()) {
      if (item.block < 0) return false;
      if constexpr (kSkips) skip_tiles(range.count());
      if (!kSplits || group == 0) {
        store_empty_rows<kType>(args, item, first_query(item) + 16 * (thread / 32), lane);
      }
      release_q();
    }
    return true;
  };
  /// Normalises and stores. Where keys are split, the second warpgroup hands its part to the first.
  const auto finish = [&](const Flash3Item& done) {
    if constexpr (kSplits) {
      if (group == 1) {
        sm90::wait(shared.part_empty(), part.empty_parity(), "a free place for O");
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) store_number(shared.part(i, thread), out[i]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          store_number(shared.part(kOutputs + half, thread), rows.max[half]);
          store_number(shared.part(kOutputs + 2 + half, thread), rows.sum[half]);
        }
        sm90::arrive(shared.part_full());
        part.advance();
        return;
      }
      sm90::wait(shared.part_full(), part.full_parity(), "O of the other keys");
      rows.join(out, args.exponent_scale, [&](int i) { return load_number(shared.part(i, thread)); });
      sm90::arrive(shared.part_empty());
      part.advance();
    }
    rows.finish(out);
    store_rows<kType, kShape>(args, shared, done, rows, out, first_query(done) + 16 * (thread / 32),
                              4 * row_group + thread / 32, lane);
  };

  /// The first tile of an item, its scores being there.
  const auto first_softmax = [&] {
    release_k();
    if (needs_mask(own_begin)) mask_tile(own_begin);
    rows = Flash3Rows();
    if (group == 0 && thread == 0) note_step(args.clock, 0, item.index());
    float tile_sum[2];
    rows.raise_to(scores, args.exponent_scale);
    rows.exponentiate(scores, args.exponent_scale, tile_sum);
    rows.add(tile_sum);
    sm90::pack_operands<kType>(scores, probs);
    if constexpr (kObserved) log_softmax(0);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] = 0.0f;
    if (own_end > own_begin + 1) {
      sm90::wait(shared.k_full(k.stage), k.full_parity(), "the second K");
    }
  };

  const auto begin_item = [&] {
    if constexpr (kSkips) skip_tiles(own_begin);
    sm90::wait(shared.k_full(k.stage), k.full_parity(), "the first K");
    await_ping_pong();
    sm90::fence_wgmma();
    multiply_scores(k.stage);
    pass_ping_pong();
    sm90::wait_for_wgmma<0>();
    first_softmax();
  };

  bool v_ready = false;
  /// S of tile `step` and P V of the one before, which are issued together; then the softmax of the former
  /// runs beside the latter.
  const auto compute_step = [&](int step) {
    if (!v_ready) sm90::wait(shared.v_full(v.stage), v.full_parity(), "V");
    await_ping_pong();
    sm90::fence_wgmma();
    const int k_stage = k.stage;
    multiply_scores(k_stage);
    multiply_values();
    pass_ping_pong();
    // Asked early, since the answer takes a while.
    k.advance();
    const auto next_v = v.next();
    const bool k_ready = step + 1 == own_end || sm90::phase_was_over(shared.k_full(k.stage), k.full_parity());
    v_ready = sm90::phase_was_over(shared.v_full(next_v.stage), next_v.full_parity());
    sm90::wait_for_wgmma<1>();
    float tile_sum[2];
    bool raised = false;     // a maximum: what was summed before takes factors
    if (needs_mask(step)) {  // rare, and where rows see their first keys
      mask_tile(step);
      rows.raise_to(scores, args.exponent_scale);
      raised = true;
    }
    [[maybe_unused]] std::uint32_t next_probs[kScores / 2];
    bool again;
    if constexpr (kKept) {
      release(shared.k_empty(k_stage));
      rows.template exponentiate_into<kType>(next_probs, scores, args.exponent_scale, tile_sum);
      again = __any_sync(0xFFFFFFFFu, !rows.maxima_suffice(tile_sum)) && !raised;
      if (again) {
        rows.raise_to(scores, args.exponent_scale);
        rows.template exponentiate_into<kType>(next_probs, scores, args.exponent_scale, tile_sum);
      }
    } else {
      rows.exponentiate(scores, args.exponent_scale, tile_sum);
      // A WGMMA is for the whole warpgroup to do again. (The vote tells the compiler that a warp agrees.)
      again = __any_sync(0xFFFFFFFFu, sm90::any_at_named(kFirstVote + group, 128,
                                                         !raised && !rows.maxima_suffice(tile_sum)));
      if (!again) release(shared.k_empty(k_stage));
    }
    // A place where control flow meets: ptxas would move the wait for P V above the exponentials if the two
    // stood in one block.
    if (!k_ready) sm90::wait(shared.k_full(k.stage), k.full_parity(), "the next K");
    sm90::wait_for_wgmma<0>();
    release_v();
    if constexpr (kObserved) log_output(item, step - 1);
    if constexpr (!kKept) {
      if (again) {
        sm90::fence_wgmma();
        multiply_scores(k_stage);
        sm90::wait_for_wgmma<0>();
        release(shared.k_empty(k_stage));
        rows.raise_to(scores, args.exponent_scale);
        rows.exponentiate(scores, args.exponent_scale, tile_sum);
      }
    }
    rows.add(tile_sum);
    if (raised || again) rows.rescale(out);
    if constexpr (kKept) {
      // ptxas takes no definition of an operand while WGMMAs run, not even of the next one's: hence a copy,
      // which it must not see through.
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) {
        asm volatile("xor.b32 %0, %1, 0;" : "=r"(probs[i]) : "r"(next_probs[i]));
      }
    } else {
      sm90::pack_operands<kType>(scores, probs);
    }
    if constexpr (kObserved) log_softmax(step);
  };

  // load is the producer's part
  bool more = next_item();
  if (more) begin_item();
  while (more) {
    v_ready = false;
    // compute
    for (int step = own_begin + 1; step < own_end; ++step) {
      if (group == 0 && thread == 0) note_step(args.clock, step, item.index());
      compute_step(step);
    }
    release_q();

    // finish: normalise once, store by warp. With a second Q, beside the first scores of the next item.
    const Flash3Item done = item;
    const int last_step = own_end - 1, unseen = range.count() - own_end;
    if constexpr (kSkips) skip_k(unseen);
    const bool beside = kShape.q_stages > 1 && look_at_item();
    sm90::wait(shared.v_full(v.stage), v.full_parity(), "the last V");
    if (beside) {
      if constexpr (kSkips) skip_k(own_begin);
      sm90::wait(shared.k_full(k.stage), k.full_parity(), "the first K");
      await_ping_pong();
      sm90::fence_wgmma();
      multiply_values();
      multiply_scores(k.stage);
      pass_ping_pong();
      sm90::wait_for_wgmma<1>();
      release_v();
      if constexpr (kSkips) skip_v(unseen + own_begin);
      if constexpr (kObserved) log_output(done, last_step);
      finish(done);
      sm90::wait_for_wgmma<0>();
      first_softmax();
    } else {
      sm90::fence_wgmma();
      multiply_values();
      sm90::wait_for_wgmma<0>();
      release_v();
      if constexpr (kSkips) skip_v(unseen);
      if constexpr (kObserved) log_output(done, last_step);
      finish(done);
      more = next_item();
      if (more) begin_item();
    }
  }
  if (lane == 0) sm90::wait_for_store_reads<0>();
}

/// Loads make 1 arrival and their bytes; releases one a warp, those of Q one a thread.
/// @param consumers  warpgroups that compute
template <auto kShape, typename Shared>
__device__ __forceinline__ void init_q_and_k_barriers(Shared shared, int consumers) {
  for (int buffer = 0; buffer < kShape.q_buffers(); ++buffer) {
    sm90::init_barrier(shared.q_full(buffer), 1);
    sm90::init_barrier(shared.q_empty(buffer), sm90::kWarpgroupThreads * consumers / kShape.row_groups());
  }
  for (int stage = 0; stage < kShape.kv_stages; ++stage) {
    sm90::init_barrier(shared.k_full(stage), 1);
    sm90::init_barrier(shared.k_empty(stage), 4 * consumers);
  }
}

}  // namespace detail

/// CTA: one q tile after the other, from the counter. Grid: as many as run at once. Dynamic shared memory:
/// Flash3ForwardLayout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_forward(const __grid_constant__ Flash3ForwardArguments args) {
  constexpr Flash3ForwardShape kShape = Choice::shape;
  constexpr Flash3ForwardLayout kLayout(kShape);
  static_assert(kLayout.end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3Shared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  auto* items = reinterpret_cast<Flash3Item*>(shared_bytes + kLayout.items);

  // From one lane to all: the compiler then knows that a warp agrees.
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    sm90::prefetch_map(args.q);
    sm90::prefetch_map(args.k);
    sm90::prefetch_map(args.v);
    sm90::prefetch_map(args.out);
    constexpr int kConsumers = kObserved && kShape.splits_keys ? 1 : kShape.consumers();
    detail::init_q_and_k_barriers<kShape>(shared, kConsumers);
    for (int stage = 0; stage < kShape.kv_stages; ++stage) {
      sm90::init_barrier(shared.v_full(stage), 1);
      sm90::init_barrier(shared.v_empty(stage), 4 * kConsumers);
    }
    if constexpr (kShape.splits_keys) {
      sm90::init_barrier(shared.part_full(), sm90::kWarpgroupThreads);
      sm90::init_barrier(shared.part_empty(), sm90::kWarpgroupThreads);
    }
    sm90::fence_barrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    sm90::give_up_registers<kShape.producer_registers()>();
    if (threadIdx.x == 0) detail::produce<kShape>(args, shared, items);
    if (threadIdx.x == 127) watchdog.watch(kShape.threads() - 128);
  } else {
    sm90::take_registers<kShape.consumer_registers()>();
    detail::consume<kType, kShape, kObserved>(args, shared, items, warpgroup - 1,
                                              static_cast<int>(threadIdx.x) % 128);
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
