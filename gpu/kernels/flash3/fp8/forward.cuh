// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, forward, fp8: e4m3 and e5m2 in, bf16 out, head_dim a multiple of 16 up to 256.
//
// Against the 16-bit pass: WGMMAs take half the time, exponentials the same, so that at head_dim 128 the
// special function unit is as busy as the tensor cores. Three things are new.
// - V. The tensor cores take bytes along K alone, so that three warps of the loading warpgroup, idle before,
//   transpose each tile of V in shared memory (byte_layout.hpp: no exchange between lanes, no bank twice).
// - Sums. The tensor cores keep 13 bits of a sum of fp8 products (cpu_ref/primitives/fp8_matmul.hpp has the
//   rule, and the mirror sums by it), which long rows feel. So the P V of a kv tile is summed by them, and
//   the tiles in fp32 by whom its registers belong to: O = O factor + part, beside the next S, where a raised
//   maximum's factor costs nothing. Fp8Sums::fast leaves that out.
// - P. e4m3 holds 17 binary orders: P of 1 is kept as 2^5, rescaling waits until a P reaches 448, and two
//   instructions for four P tell.
// A warpgroup's step: wait for K and V; P V of the tile before and S are issued together; O += part beside S;
// softmax, while the other warpgroup multiplies. (The 16-bit pass puts its softmax beside its own P V. That
// takes scores, both P, part and O in registers at once: 224. Fast sums, without a part, do so at 256.)
// Source: FlashAttention-3, arXiv:2407.08608, section 3.3.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "cpu_ref/primitives/score_constants.hpp"
#include "gpu/kernels/flash3/forward/forward.cuh"
#include "gpu/kernels/flash3/fp8/arguments.cuh"
#include "gpu/kernels/flash3/fp8/softmax.cuh"
#include "gpu/kernels/flash3/fp8/store.cuh"
#include "gpu/kernels/flash3/fp8/transpose.cuh"

namespace tilescope::gpu {
namespace detail {

/// A warpgroup that computes 64 rows of each tile.
/// @tparam kObserved  logs the tiles that it visits; every maximum is exact: see consume() of the 16-bit pass
template <sm90::WgmmaType kType, Flash3Fp8Shape kShape, bool kObserved>
__device__ __forceinline__ void consume_bytes(const Flash3Fp8Arguments& args, Flash3Fp8Shared<kShape> shared,
                                              const Flash3Item* items, int group, int thread) {
  constexpr int kBlockN = kShape.tile.block_n, kHeadDim = kShape.head_dim;
  constexpr int kScores = kBlockN / 2, kOutputs = kHeadDim / 2;
  constexpr int kPartCols = kShape.part_cols(), kParts = kShape.parts();
  constexpr bool kTwoLevel = kShape.sums == Fp8Sums::two_level;
  constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKTile = kShape.kv_tile();
  constexpr sm90::PanelTile kVTile = kShape.transposed_tile();
  constexpr int kFirstPingPong = 1;  // of the named barriers
  using sm90::Major;
  const int lane = thread % 32;

  /// `thread`, read anew, so that what rare code makes of it takes no registers elsewhere.
  const auto thread_again = [] {
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number % 128;
  };
  const auto await_ping_pong = [&] {
    if constexpr (kShape.ping_pong) sm90::sync_named(kFirstPingPong + group, 256);
  };
  const auto pass_ping_pong = [&] {
    if constexpr (kShape.ping_pong)
      sm90::arrive_named(kFirstPingPong + (group + 1) % kShape.consumers(), 256);
  };
  if (group == kShape.consumers() - 1) pass_ping_pong();
  const auto release = [&](std::uint32_t empty) {
    if (lane == 0) sm90::arrive(empty);
  };

  sm90::RingPlace<kShape.q_stages> q;
  sm90::RingPlace<kShape.kv_stages> k, v;
  const auto q_buffer = [&] { return q.stage * kShape.consumers() + group; };
  float scores[kScores];
  using Probs = std::uint32_t[kScores / 4];
  Probs probs;
  float out[kOutputs];
  [[maybe_unused]] float part[kTwoLevel ? kPartCols / 2 : 1];
  Flash3ScaledRows<kFlash3Fp8Power<kType, !kObserved>> rows;
  Flash3Item item{};
  TileRange range;
  int full_begin = 0, full_end = 0;  // the steps that need no mask
  [[maybe_unused]] float v_unit = 1.0f;
  float exponent_scale = args.exponent_scale, softmax_scale = args.softmax_scale;
  const auto first_query = [&](const Flash3Item& of) {
    return of.block * kShape.tile.block_m + sm90::kWarpgroupRows * group;
  };
  const auto needs_mask = [&](int step) { return step < full_begin || step >= full_end; };
  const auto n_block = [&](int step) { return scan_tile(args.scan, range, item.wave_parity(), step); };
  const auto batch_head = [&](const Flash3Item& of) { return of.batch * args.heads + of.head; };

  const auto multiply_scores = [&] {
    const sm90::Operand left(kQTile, Major::k, shared.q(q_buffer()));
    const sm90::Operand right(kKTile, Major::k, shared.k(k.stage));
#pragma unroll
    for (int step = 0; step < kHeadDim / 32; ++step) {
      sm90::multiply<kBlockN, kType>(scores, left.at(k_step(kQTile, Major::k, step)),
                                     right.at(k_step(kKTile, Major::k, step)), step > 0);
    }
    sm90::commit_wgmma();
  };
  /// P V into `sum`, of the columns from `first` on.
  const auto multiply_values = [&](auto& sum, int first, bool accumulate) {
    constexpr int kCols = static_cast<int>(sizeof(sum) / sizeof(float)) * 2;
    const sm90::Operand right(kVTile, Major::k,
                              shared.transposed(v.stage) + first * sm90::panel_row_bytes(kVTile.swizzle));
#pragma unroll
    for (int step = 0; step < kBlockN / 32; ++step) {
      sm90::multiply<kCols, kType>(sum, probs + 4 * step, right.at(k_step(kVTile, Major::k, step)),
                                   accumulate || step > 0);
    }
    sm90::commit_wgmma();
  };
  const auto release_q = [&] {
    sm90::arrive(shared.q_empty(q_buffer()));
    q.advance();
  };
  const auto release_k = [&] {
    release(shared.k_empty(k.stage));
    k.advance();
  };
  const auto release_v = [&] {
    release(shared.transposed_empty(v.stage));
    v.advance();
  };

  const auto log_scores = [&](int step) {
    sm90::log_masked(TileLogEntry(args.log, step, item.batch, item.head, item.block, n_block(step),
                                  item.index(), group == 0 && thread == 0),
                     &DeviceTileState::scores, scores, args.band.seqlen_q - first_query(item), thread);
  };
  const auto log_softmax = [&](int step, const Probs& made) {
    const TileLogEntry entry(args.log, step, item.index());
    const int rows_inside = args.band.seqlen_q - first_query(item);
    sm90::log_rows(entry, rows.max, rows.sum, rows_inside, thread);
    sm90::log_bytes<kType>(entry, &DeviceTileState::probs, made, rows_inside, thread);
  };
  const auto log_output = [&](const Flash3Item& of, int step) {
    sm90::log_masked(TileLogEntry(args.log, step, of.index()), &DeviceTileState::accum, out,
                     args.band.seqlen_q - first_query(of), thread);
  };

  /// The next item with something to compute; the others' rows are 0. False: there are no more.
  const auto next_item = [&] {
    for (;;) {
      sm90::wait(shared.q_full(q_buffer()), q.full_parity(), "Q");
      item = items[q_buffer()];
      if (item.block < 0) return false;
      range = kv_tiles(args.band, kShape.tile, item.block);
      if (!range.empty()) break;
      const int here = thread_again();
      store_empty_rows<sm90::WgmmaType::bf16>(args, item, first_query(item) + 16 * (here / 32), here % 32);
      release_q();
    }
    if (kObserved || args.score_sign < 0.0f) range.full_end = range.full_begin;
    const bool down = n_block(0) != range.begin;
    full_begin = down ? range.end - range.full_end : range.full_begin - range.begin;
    full_end = full_begin + range.full_end - range.full_begin;
    float descale = args.descale_q.at(batch_head(item), item.block);
    if (args.descale_k.blocks == 1) descale *= args.descale_k.at(batch_head(item), 0);
    exponent_scale = fmaxf(args.exponent_scale * descale, kLeastExponentScale);
    softmax_scale = args.softmax_scale * descale;
    return true;
  };

  /// Probabilities of step `step` from its scores, and the factors that what was summed before takes.
  /// Rescaling is conditional where it is not `careful`, a std::bool_constant: that is for steps that may
  /// need a mask.
  const auto softmax = [&](int step, auto careful, Probs& made) {
    float descale = 1.0f, scale = exponent_scale;
    if (args.descale_k.blocks > 1) [[unlikely]] {
      descale = args.descale_k.at(batch_head(item), n_block(step));
      scale = fmaxf(exponent_scale * descale, kLeastExponentScale);
    }
    if constexpr (careful) {
      if (needs_mask(step)) {
        sm90::mask_scores(scores, args.score_sign, args.band, first_query(item), n_block(step) * kBlockN,
                          thread_again());
        if constexpr (kObserved) log_scores(step);
      }
      rows.raise_to(scores, exponent_scale, descale);
    } else {
      rows.factor[0] = rows.factor[1] = 1.0f;
    }
    float tile_sum[2];
    const bool at_end = exponentiate_to_bytes<kType>(rows, made, scores, scale, tile_sum);
    if constexpr (!careful) {
      const bool unseen = rows.max[0] == kMinusInfinity || rows.max[1] == kMinusInfinity;
      if (__any_sync(0xFFFFFFFFu, at_end || unseen)) {
        rows.raise_to(scores, exponent_scale, descale);
        exponentiate_to_bytes<kType>(rows, made, scores, scale, tile_sum);
      }
    }
    rows.add(tile_sum);
    if constexpr (kObserved) log_softmax(step, made);
  };

  /// The two levels meet: O = O factor + part.
  const auto add_part = [&](int first) {
    if constexpr (kTwoLevel) {
#pragma unroll
      for (int i = 0; i < kPartCols / 2; ++i) {
        float& sum = out[first / 2 + i];
        sum = fmaf(sum, rows.factor[i / 2 % 2], part[i]);
      }
    }
  };
  /// Where V's tiles have descales of their own, O is kept in units of the newest tile's.
  const auto take_unit = [&](const Flash3Item& of, int block_of_v) {
    if (args.descale_v.blocks > 1) [[unlikely]] {
      const float unit = fmaxf(args.descale_v.at(batch_head(of), block_of_v), kLeastValueUnit);
      const float ratio = v_unit / unit;
      rows.factor[0] *= ratio;
      rows.factor[1] *= ratio;
      v_unit = unit;
    }
  };

  /// P V of step `step`, into O; and S of the next beside it, if `with_scores`.
  const auto add_values = [&](int block_of_v, const Flash3Item& of, auto with_scores) {
    constexpr bool kBeside = kShape.order != Flash3Fp8Order::after;
    static_assert(!kBeside || kParts == 1);
    take_unit(of, block_of_v);
    if constexpr (!kTwoLevel) {
      if (rows.factor[0] != 1.0f || rows.factor[1] != 1.0f) rows.rescale(out);
    }
    sm90::fence_wgmma();
    if constexpr (!kTwoLevel) {
      multiply_values(out, 0, true);
    } else if constexpr (kBeside) {
      multiply_values(part, 0, false);
    } else {
#pragma unroll
      for (int index = 0; index < kParts; ++index) {
        if (index > 0) sm90::fence_wgmma();
        multiply_values(part, index * kPartCols, false);
        sm90::wait_for_wgmma<0>();
        add_part(index * kPartCols);
      }
      release_v();
      if constexpr (with_scores) sm90::fence_wgmma();
    }
    if constexpr (with_scores) multiply_scores();
    if constexpr (kBeside || !kTwoLevel) {
      sm90::wait_for_wgmma<with_scores ? 1 : 0>();
      release_v();
    }
    if constexpr (!with_scores) pass_ping_pong();
    if constexpr (kBeside && kTwoLevel) add_part(0);
  };
  const auto wait_for_scores = [&] {
    sm90::wait_for_wgmma<0>();
    pass_ping_pong();
  };

  /// The first tile of an item, its scores being there.
  const auto first_softmax = [&] {
    release_k();
    rows = {};
    if (group == 0 && thread == 0) note_step(args.clock, 0, item.index());
    softmax(0, std::true_type{}, probs);
    rows.factor[0] = rows.factor[1] = 1.0f;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] = 0.0f;
  };
  const auto begin_item = [&] {
    sm90::wait(shared.k_full(k.stage), k.full_parity(), "the first K");
    await_ping_pong();
    sm90::fence_wgmma();
    multiply_scores();
    wait_for_scores();
    first_softmax();
  };
  const auto wait_for_step = [&](int step) {
    if (group == 0 && thread == 0) note_step(args.clock, step, item.index());
    sm90::wait_for_both(shared.transposed_full(v.stage), v.full_parity(), "V", shared.k_full(k.stage),
                        k.full_parity(), "K");
  };
  const auto compute_step = [&](int step, auto careful) {
    wait_for_step(step);
    await_ping_pong();
    add_values(n_block(step - 1), item, std::true_type{});
    if constexpr (kObserved) log_output(item, step - 1);
    wait_for_scores();
    release_k();
    softmax(step, careful, probs);
  };
  /// The same with S first, and P V of the tile before beside the softmax.
  const auto compute_lagging_step = [&](int step, auto careful) {
    wait_for_step(step);
    take_unit(item, n_block(step - 1));
    if (rows.factor[0] != 1.0f || rows.factor[1] != 1.0f) rows.rescale(out);
    sm90::fence_wgmma();
    multiply_scores();
    multiply_values(out, 0, true);
    sm90::wait_for_wgmma<1>();
    release_k();
    Probs next;
    softmax(step, careful, next);
    // A place where control flow meets, since it is long complete: ptxas would move the wait for P V above
    // the exponentials if the two stood in one block.
    sm90::wait(shared.transposed_full(v.stage), v.full_parity(), "V, again");
    sm90::wait_for_wgmma<0>();
    release_v();
    // ptxas takes no definition of an operand while WGMMAs run: hence a copy, which it must not see
    // through.
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      asm volatile("xor.b32 %0, %1, 0;" : "=r"(probs[i]) : "r"(next[i]));
    }
  };
  const auto compute = [&](int step, auto careful) {
    if constexpr (kShape.order == Flash3Fp8Order::lag) {
      // Parts would take registers beside both P, and nobody observes fast sums.
      static_assert(!kTwoLevel && !kObserved && !kShape.ping_pong);
      compute_lagging_step(step, careful);
    } else {
      compute_step(step, careful);
    }
  };
  const auto finish = [&](const Flash3Item& done, float done_scale) {
    const float unit = args.descale_v.blocks > 1 ? v_unit : args.descale_v.at(batch_head(done), 0);
    rows.finish(out, unit);
    v_unit = 1.0f;
    const int here = thread_again(), query = first_query(done) + 16 * (here / 32);
    store_lse(args, done, rows, done_scale, query, here % 32);
    store_byte_ordered_rows(args, done, out, query, here % 32);
  };

  // load and transpose are others' parts
  bool more = next_item();
  if (more) begin_item();
  while (more) {
    // compute
    for (int step = 1; step < range.count();) {
      if (needs_mask(step)) {
        compute(step++, std::true_type{});
      } else if constexpr (!kObserved) {  // most are full: a loop without what the others need
        for (; step < full_end; ++step) compute(step, std::false_type{});
      }
    }
    release_q();

    // finish: normalise once, store by warp. With a second Q, beside the first scores of the next item.
    const Flash3Item done = item;
    const int last_step = range.count() - 1, last_block = n_block(last_step);
    const float done_scale = softmax_scale;
    if constexpr (kShape.q_stages > 1) more = next_item();
    sm90::wait(shared.transposed_full(v.stage), v.full_parity(), "the last V");
    if (kShape.q_stages > 1 && more) {
      sm90::wait(shared.k_full(k.stage), k.full_parity(), "the first K");
      await_ping_pong();
      add_values(last_block, done, std::true_type{});
      if constexpr (kObserved) log_output(done, last_step);
      finish(done, done_scale);
      wait_for_scores();
      first_softmax();
    } else {
      await_ping_pong();
      add_values(last_block, done, std::false_type{});
      if constexpr (kObserved) log_output(done, last_step);
      finish(done, done_scale);
      if constexpr (kShape.q_stages == 1) {
        more = next_item();
        if (more) begin_item();
      }
    }
  }
}

template <Flash3Fp8Shape kShape>
__device__ __forceinline__ void init_fp8_barriers(Flash3Fp8Shared<kShape> shared, int* last) {
  init_q_and_k_barriers<kShape>(shared, kShape.consumers());
  for (int stage = 0; stage < kShape.kv_stages; ++stage) {
    sm90::init_barrier(shared.transposed_full(stage), kShape.transposing_warps());
    sm90::init_barrier(shared.transposed_empty(stage), kShape.warps());
  }
  for (int stage = 0; stage < kShape.raw_stages; ++stage) {
    sm90::init_barrier(shared.v_full(stage), 1);
    sm90::init_barrier(shared.v_empty(stage), kShape.transposing_warps());
    last[stage] = 0;
  }
  sm90::fence_barrier_init();
}

}  // namespace detail

/// CTA: one q tile after the other, from the counter. Grid: as many as run at once. Dynamic shared memory:
/// Flash3Fp8Layout.
template <sm90::WgmmaType kType, typename Choice, bool kObserved>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void flash3_fp8_forward(const __grid_constant__ Flash3Fp8Arguments args) {
  constexpr Flash3Fp8Shape kShape = Choice::shape;
  constexpr Flash3Fp8Layout kLayout(kShape);
  static_assert(kLayout.end <= kSm90SharedBytes, "the tile does not fit shared memory");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const detail::Flash3Fp8Shared<kShape> shared{sm90::shared_address_of(shared_bytes)};
  auto* items = reinterpret_cast<Flash3Item*>(shared_bytes + kLayout.items);
  auto* last = reinterpret_cast<int*>(shared_bytes + kLayout.last);

  // From one lane to all: the compiler then knows that a warp agrees.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const sm90::Watchdog watchdog = sm90::watchdog();
  if (threadIdx.x == 0) {
    sm90::prefetch_map(args.q);
    sm90::prefetch_map(args.k);
    sm90::prefetch_map(args.v);
    detail::init_fp8_barriers(shared, last);
  }
  __syncthreads();

  if (warp < 4) {
    sm90::give_up_registers<kShape.producer_registers()>();
    if (warp > 0) {
      detail::transpose(shared, last, warp - 1);
    } else if (threadIdx.x == 0) {
      detail::end_transposing(shared, last, detail::produce<kShape>(args, shared, items));
    } else if (threadIdx.x == 31) {
      watchdog.watch(kShape.threads() - 128);
    }
  } else {
    sm90::take_registers<kShape.consumer_registers()>();
    detail::consume_bytes<kType, kShape, kObserved>(args, shared, items, warp / 4 - 1,
                                                    static_cast<int>(threadIdx.x) % 128);
    watchdog.say_done();
  }
}

}  // namespace tilescope::gpu
