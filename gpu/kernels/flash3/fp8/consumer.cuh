// SPDX-License-Identifier: Apache-2.0
// The computing side of flash3's fp8 forward pass.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "cpu_ref/primitives/score_constants.hpp"
#include "gpu/kernels/flash3/forward/observed.cuh"
#include "gpu/kernels/flash3/forward/store.cuh"
#include "gpu/kernels/flash3/fp8/arguments.cuh"
#include "gpu/kernels/flash3/fp8/softmax.cuh"
#include "gpu/kernels/flash3/fp8/store.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::detail {

/// A warpgroup that computes 64 rows of each tile.
/// @tparam kObserved  logs the tiles that it visits, and what P of each row is relative to
template <sm90::WgmmaType kType, Flash3Fp8Shape kShape, bool kObserved>
struct Flash3Fp8Consumer {
  static constexpr bool kInterleaves = kShape.interleaves();
  static constexpr int kBlockN = kShape.tile.block_n, kHeadDim = kShape.head_dim;
  static constexpr int kScores = kBlockN / 2, kOutputs = kHeadDim / 2;
  static constexpr int kPartCols = kShape.part_cols(), kParts = kShape.parts();
  static constexpr bool kTwoLevel = kShape.sums == Fp8Sums::two_level;
  static constexpr int kFirstPingPong = 1;  // of the named barriers
  using Probs = std::uint32_t[kScores / 4];

  const Flash3Fp8Arguments& args;
  Flash3Fp8Shared<kShape> shared;
  const Flash3Item* items;
  int group, thread;  // of the warpgroup
  using Shared = Flash3Fp8Shared<kShape>;
  sm90::Pipe<Shared::kLayout.q> q;
  sm90::Pipe<Shared::kLayout.k> k;
  sm90::Pipe<Shared::kLayout.transposed> v;
  float scores[kScores];
  Probs probs;
  float out[kOutputs];
  float part[kTwoLevel ? kPartCols / 2 : 1];
  Flash3ScaledRows<kFlash3Fp8Power<kType>> rows;
  Flash3Item item{};
  TileRange range;
  int full_begin = 0, full_end = 0;  // the steps that need no mask
  float v_unit = 1.0f;
  float exponent_scale, softmax_scale;

  __device__ __forceinline__ Flash3Fp8Consumer(const Flash3Fp8Arguments& args, Flash3Fp8Shared<kShape> shared,
                                               const Flash3Item* items, int group, int thread)
      : args(args),
        shared(shared),
        items(items),
        group(group),
        thread(thread),
        q(shared.q(group)),
        k(shared.k()),
        v(shared.transposed()),
        exponent_scale(args.exponent_scale),
        softmax_scale(args.softmax_scale) {}

  __device__ __forceinline__ int lane() const { return thread % 32; }
  /// `thread`, read anew, so that what rare code makes of it takes no registers elsewhere.
  __device__ __forceinline__ int thread_again() {
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number % 128;
  }
  __device__ __forceinline__ void await_ping_pong() {
    if constexpr (kShape.ping_pong) sm90::sync_named(kFirstPingPong + group, 256);
  }
  __device__ __forceinline__ void pass_ping_pong() {
    if constexpr (kShape.ping_pong)
      sm90::arrive_named(kFirstPingPong + (group + 1) % kShape.consumers(), 256);
  }

  __device__ __forceinline__ int first_query(const Flash3Item& of) const {
    return of.block * kShape.tile.block_m + sm90::kWarpgroupRows * group;
  }
  /// Where its rows' maxima stand in the tile log.
  __device__ __forceinline__ int first_row_of_log() const { return sm90::kWarpgroupRows * group; }
  __device__ __forceinline__ bool needs_mask(int step) { return step < full_begin || step >= full_end; }
  __device__ __forceinline__ int n_block(int step) const {
    return scan_tile(args.scan, range, item.wave_parity(), step);
  }
  __device__ __forceinline__ int batch_head(const Flash3Item& of) {
    return of.batch(args) * args.heads + of.head;
  }

  __device__ __forceinline__ void multiply_scores() {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKTile = kShape.kv_tile();
    const sm90::Operand left(kQTile, sm90::Major::k, q.buffer());
    const sm90::Operand right(kKTile, sm90::Major::k, k.buffer());
#pragma unroll
    for (int step = 0; step < kHeadDim / 32; ++step) {
      sm90::multiply<kBlockN, kType>(scores, left.at(k_step(kQTile, sm90::Major::k, step)),
                                     right.at(k_step(kKTile, sm90::Major::k, step)), step > 0);
    }
    sm90::commit_wgmma();
  }
  /// P V into `sum`, of the columns from `first` on.
  __device__ __forceinline__ void multiply_values(auto& sum, int first, bool accumulate) {
    constexpr sm90::PanelTile kVTile = kShape.transposed_tile();
    constexpr int kCols = static_cast<int>(sizeof(sum) / sizeof(float)) * 2;
    const sm90::Operand right(kVTile, sm90::Major::k,
                              v.buffer() + first * sm90::panel_row_bytes(kVTile.swizzle));
#pragma unroll
    for (int step = 0; step < kBlockN / 32; ++step) {
      sm90::multiply<kCols, kType>(sum, probs + 4 * step, right.at(k_step(kVTile, sm90::Major::k, step)),
                                   accumulate || step > 0);
    }
    sm90::commit_wgmma();
  }
  __device__ __forceinline__ void release_q() { q.release(); }
  __device__ __forceinline__ void release_k() { k.release(lane() == 0); }
  __device__ __forceinline__ void release_v() { v.release(lane() == 0); }

  /// The next item with something to compute; the others' rows are 0. False: there are no more.
  __device__ __forceinline__ bool next_item() {
    for (;;) {
      q.wait_full("Q");
      item = items[q.index()];
      if (item.block < 0) return false;
      range = item.template tiles<kShape>(args);
      if (!range.empty()) break;
      const int here = thread_again();
      store_empty_rows<kShape>(args, item, first_query(item), 16 * (here / 32), here % 32);
      release_q();
    }
    if (args.score_sign < 0.0f) range.full_end = range.full_begin;
    const bool down = n_block(0) != range.begin;
    full_begin = down ? range.end - range.full_end : range.full_begin - range.begin;
    full_end = full_begin + range.full_end - range.full_begin;
    float descale = args.descale_q.at(batch_head(item), item.block);
    if (args.descale_k.blocks == 1) descale *= args.descale_k.at(batch_head(item), 0);
    exponent_scale = fmaxf(args.exponent_scale * descale, kLeastExponentScale);
    softmax_scale = args.softmax_scale * descale;
    return true;
  }

  /// Probabilities of step `step` from its scores, and the factors that what was summed before takes.
  /// Rescaling is conditional where it is not `careful`, a std::bool_constant: that is for steps that may
  /// need a mask.
  __device__ __forceinline__ void softmax(int step, auto careful, Probs& made) {
    float descale = 1.0f, scale = exponent_scale;
    if (args.descale_k.blocks > 1) [[unlikely]] {
      descale = args.descale_k.at(batch_head(item), n_block(step));
      scale = fmaxf(exponent_scale * descale, kLeastExponentScale);
    }
    if constexpr (careful) {
      if (needs_mask(step)) {
        mask_rows<kShape>(scores, args.score_sign, args, first_query(item), n_block(step) * kBlockN,
                          thread_again());
      }
      rows.raise_to(scores, exponent_scale, descale);
    } else {
      rows.factor[0] = rows.factor[1] = 1.0f;
    }
    if constexpr (kObserved) log_scores(*this, step);
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
    if constexpr (kObserved) log_softmax<kType>(*this, step);
  }

  /// The two levels meet: O = O factor + part.
  __device__ __forceinline__ void add_part(int first) {
    if constexpr (kTwoLevel) {
#pragma unroll
      for (int i = 0; i < kPartCols / 2; ++i) {
        float& sum = out[first / 2 + i];
        sum = fmaf(sum, rows.factor[i / 2 % 2], part[i]);
      }
    }
  }
  /// Where V's tiles have descales of their own, O is kept in units of the newest tile's.
  __device__ __forceinline__ void take_unit(const Flash3Item& of, int block_of_v) {
    if (args.descale_v.blocks > 1) [[unlikely]] {
      const float unit = fmaxf(args.descale_v.at(batch_head(of), block_of_v), kLeastValueUnit);
      const float ratio = v_unit / unit;
      rows.factor[0] *= ratio;
      rows.factor[1] *= ratio;
      v_unit = unit;
    }
  }

  /// P V of step `step`, into O; and S of the next beside it, if `with_scores`.
  __device__ __forceinline__ void add_values(int block_of_v, const Flash3Item& of, auto with_scores) {
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
  }
  __device__ __forceinline__ void wait_for_scores() {
    sm90::wait_for_wgmma<0>();
    pass_ping_pong();
  }

  /// The first tile of an item, its scores being there.
  __device__ __forceinline__ void first_softmax() {
    release_k();
    rows = decltype(rows)::starting(first_query(item) < args.band.seqlen_q);
    if (group == 0 && thread == 0) note_step(args.clock, 0, item.index());
    softmax(0, std::true_type{}, probs);
    rows.factor[0] = rows.factor[1] = 1.0f;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] = 0.0f;
  }
  __device__ __forceinline__ void begin_item() {
    k.wait_full("the first K");
    await_ping_pong();
    sm90::fence_wgmma();
    multiply_scores();
    wait_for_scores();
    first_softmax();
  }
  __device__ __forceinline__ void wait_for_step(int step) {
    if (group == 0 && thread == 0) note_step(args.clock, step, item.index());
    sm90::wait_for_both(v.full(), v.place.full_parity(), "V", k.full(), k.place.full_parity(), "K");
  }
  __device__ __forceinline__ void compute_step(int step, auto careful) {
    wait_for_step(step);
    await_ping_pong();
    add_values(n_block(step - 1), item, std::true_type{});
    if constexpr (kObserved) log_output(*this, item, step - 1);
    wait_for_scores();
    release_k();
    softmax(step, careful, probs);
  }
  /// The same with S first, and P V of the tile before beside the softmax.
  __device__ __forceinline__ void compute_lagging_step(int step, auto careful) {
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
    v.wait_full("V, again");
    sm90::wait_for_wgmma<0>();
    release_v();
    // ptxas takes no definition of an operand while WGMMAs run: hence a copy, which it must not see
    // through.
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      asm volatile("xor.b32 %0, %1, 0;" : "=r"(probs[i]) : "r"(next[i]));
    }
  }
  __device__ __forceinline__ void compute(int step, auto careful) {
    if constexpr (kShape.order == Flash3Fp8Order::lag) {
      // Parts would take registers beside both P, and nobody observes fast sums.
      static_assert(!kTwoLevel && !kObserved && !kShape.ping_pong);
      compute_lagging_step(step, careful);
    } else {
      compute_step(step, careful);
    }
  }
  __device__ __forceinline__ void finish(const Flash3Item& done, float done_scale) {
    const float unit = args.descale_v.blocks > 1 ? v_unit : args.descale_v.at(batch_head(done), 0);
    rows.finish(out, unit);
    v_unit = 1.0f;
    const int here = thread_again(), query = first_query(done) + 16 * (here / 32);
    store_lse(args, done, rows, done_scale, query, here % 32);
    store_byte_ordered_rows(args, done, out, query, here % 32);
  }

  __device__ __forceinline__ void run() {
    if (group == kShape.consumers() - 1) pass_ping_pong();
    // load and transpose are others' parts
    bool more = next_item();
    if (more) begin_item();
    while (more) {
      // compute
      for (int step = 1; step < range.count();) {
        if (needs_mask(step)) {
          compute(step++, std::true_type{});
        } else {  // most are full: a loop without what the others need
          for (; step < full_end; ++step) compute(step, std::false_type{});
        }
      }
      release_q();

      // finish: normalise once, store by warp. With a second Q, beside the first scores of the next item.
      const Flash3Item done = item;
      const int last_step = range.count() - 1, last_block = n_block(last_step);
      const float done_scale = softmax_scale;
      if constexpr (kShape.q_stages > 1) more = next_item();
      v.wait_full("the last V");
      if (kShape.q_stages > 1 && more) {
        k.wait_full("the first K");
        await_ping_pong();
        add_values(last_block, done, std::true_type{});
        if constexpr (kObserved) log_output(*this, done, last_step);
        finish(done, done_scale);
        wait_for_scores();
        first_softmax();
      } else {
        await_ping_pong();
        add_values(last_block, done, std::false_type{});
        if constexpr (kObserved) log_output(*this, done, last_step);
        finish(done, done_scale);
        if constexpr (kShape.q_stages == 1) {
          more = next_item();
          if (more) begin_item();
        }
      }
    }
  }
};

}  // namespace tilescope::gpu::detail
