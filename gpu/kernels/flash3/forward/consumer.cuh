// SPDX-License-Identifier: Apache-2.0
// The computing side of flash3's forward pass: a warpgroup's way through its items of work, from the first
// scores of each to its rows of O.
#pragma once

#include "gpu/kernels/flash3/forward/step.cuh"
#include "gpu/kernels/flash3/forward/store.cuh"

namespace tilescope::gpu::detail {

/// A warpgroup that computes 64 rows of each tile, or of its part of the tile's keys.
template <sm90::WgmmaType kType, Flash3ForwardShape kShape, bool kObserved>
struct Flash3ForwardConsumer : Flash3ForwardStep<kType, kShape, kObserved> {
  using Step = Flash3ForwardStep<kType, kShape, kObserved>;
  using Step::args, Step::shared, Step::group, Step::thread, Step::row_group, Step::k, Step::v;
  using Step::await_ping_pong, Step::pass_ping_pong, Step::multiply_scores, Step::multiply_values;
  using Step::item, Step::range, Step::own_begin, Step::own_end, Step::kSplits, Step::kSkips, Step::kMods;
  using Step::lane, Step::first_query, Step::look_at_item, Step::look_at_tile, Step::release_q;
  using Step::out, Step::rows, Step::v_ready, Step::kOutputs, Step::sink, Step::first_softmax;
  using Step::release_v, Step::skip_k, Step::skip_v, Step::skip_tiles;
  sm90::Pipe<Flash3Shared<kShape>::kLayout.part> part = Step::shared.part();

  using Step::Step;

  /// The next item with something to compute; the others' rows are 0. False: there are no more.
  __device__ __forceinline__ bool next_item() {
    while (!look_at_item()) {
      if (item.block < 0) return false;
      if constexpr (kSkips) skip_tiles(range.count());
      if constexpr (kSkips && kObserved) log_left_out(*this, 0, range.count());
      if (!kSplits || group == 0) {
        store_empty_rows<kShape>(args, shared, item, first_query(item), 4 * row_group + thread / 32, lane(),
                                 sink());
      }
      release_q();
    }
    return true;
  }
  /// Where a thread leaves a number of the second part of the keys for its twin.
  __device__ __forceinline__ std::uint32_t part_number(int number) const {
    return part.buffer() + 4 * (128 * number + thread);
  }
  /// Normalises and stores. Where keys are split, the second warpgroup hands its part to the first.
  __device__ __forceinline__ void finish(const Flash3Item& done) {
    if constexpr (kSplits) {
      if (group == 1) {
        part.wait_empty("a free place for O");
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) store_number(part_number(i), out[i]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          store_number(part_number(kOutputs + half), rows.max[half]);
          store_number(part_number(kOutputs + 2 + half), rows.sum[half]);
        }
        sm90::arrive(part.full());
        part.advance();
        return;
      }
      part.wait_full("O of the other keys");
      rows.join(out, args.exponent_scale, [&](int i) { return load_number(part_number(i)); });
      part.release();
    }
    rows.finish(out);
    store_rows<kType, kShape>(args, shared, done, rows, out, first_query(done), 4 * row_group + thread / 32,
                              lane());
  }

  __device__ __forceinline__ void begin_item() {
    if constexpr (kSkips) skip_tiles(own_begin);
    if constexpr (kSkips && kObserved) log_left_out(*this, 0, own_begin);
    k.wait_full("the first K");
    await_ping_pong();
    sm90::fence_wgmma();
    multiply_scores(k.stage());
    pass_ping_pong();
    look_at_tile(k.stage());
    sm90::wait_for_wgmma<0>();
    first_softmax();
  }

  template <Flash3Modifying kModifying>
  __device__ __forceinline__ void compute_steps() {
    for (int step = own_begin + 1; step < own_end; ++step) {
      if (group == 0 && thread == 0) note_step(args.clock, step, item.index());
      this->template compute_step<kModifying>(step);
    }
  }
  /// A loop for each way of modifying scores, so that what a problem has not costs it nothing.
  __device__ __forceinline__ void compute_steps() {
    using enum Flash3Modifying;
    if constexpr (!kMods) {
      compute_steps<nowhere>();
    } else if constexpr (kObserved) {
      compute_steps<registers>();
    } else {
      if constexpr (kShape.caps) {
        if (args.mods.softcap > 0.0f) return compute_steps<registers>();
      }
      if (args.mods.slopes || args.mods.sign < 0.0f) return compute_steps<exponents>();
      compute_steps<nowhere>();
    }
  }

  __device__ __forceinline__ void run() {
    if (group == kShape.consumers() - 1) pass_ping_pong();
    bool more = next_item();
    if (more) begin_item();
    while (more) {
      v_ready = false;
      // compute
      compute_steps();
      release_q();

      // finish: normalise once, store by warp. With a second Q, beside the first scores of the next item.
      const Flash3Item done = item;
      const int last_step = own_end - 1, unseen = range.count() - own_end;
      if constexpr (kSkips) skip_k(unseen);
      if constexpr (kSkips && kObserved) log_left_out(*this, own_end, range.count());
      const bool beside = kShape.q_stages > 1 && look_at_item();
      v.wait_full("the last V");
      if (beside) {
        if constexpr (kSkips) skip_k(own_begin);
        if constexpr (kSkips && kObserved) log_left_out(*this, 0, own_begin);
        k.wait_full("the first K");
        await_ping_pong();
        sm90::fence_wgmma();
        multiply_values();
        multiply_scores(k.stage());
        pass_ping_pong();
        look_at_tile(k.stage());
        sm90::wait_for_wgmma<1>();
        release_v();
        if constexpr (kSkips) skip_v(unseen + own_begin);
        if constexpr (kObserved) log_output(*this, done, last_step);
        if constexpr (kSkips && kObserved) log_unchanged(*this, done, last_step + 1, last_step + 1 + unseen);
        finish(done);
        sm90::wait_for_wgmma<0>();
        first_softmax();
      } else {
        sm90::fence_wgmma();
        multiply_values();
        sm90::wait_for_wgmma<0>();
        release_v();
        if constexpr (kSkips) skip_v(unseen);
        if constexpr (kObserved) log_output(*this, done, last_step);
        if constexpr (kSkips && kObserved) log_unchanged(*this, done, last_step + 1, last_step + 1 + unseen);
        finish(done);
        more = next_item();
        if (more) begin_item();
      }
    }
    if (lane() == 0) sm90::wait_for_store_reads<0>();
  }
};

}  // namespace tilescope::gpu::detail
