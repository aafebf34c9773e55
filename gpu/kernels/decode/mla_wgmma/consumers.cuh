// SPDX-License-Identifier: Apache-2.0
// The two warpgroups of gpu:mla-decode that compute on Hopper.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/loader.cuh"
#include "gpu/kernels/decode/scores.cuh"
#include "gpu/primitives/common/quad_reduce.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/observe.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/warpgroup_gemm.cuh"

namespace tilescope::mla_wgmma {

/// What both have: 64 rows of O, some of its columns.
template <WgmmaType kType, bool kObserved>
struct Consumer {
  static constexpr int kOutputs = Shape::kHalfColumns / 2;
  using Values = TileOperand<Shape::value_tile(), Major::mn>;

  const KernelArguments& args;
  const DecodeArguments& decode;
  const CtaTile& cta;
  Shared shared;
  int part, thread;  // of O: left, right
  RingPlace<Shape::kStages> place{};
  float out[kOutputs] = {};

  __device__ __forceinline__ int lane() const { return thread % 32; }
  __device__ __forceinline__ int first_row() const { return thread / 32 * 16; }  // the warp's
  /// Of the thread, one of two.
  __device__ __forceinline__ int row(int half) const { return accumulator_entry(thread, 2 * half).row; }
  __device__ __forceinline__ Values values() const {
    return Values(shared.k(place.stage) + part * Shape::kHalfPanels * Shape::key_tile().panel_bytes());
  }
  /// Gives the part of the stage back, of which this warpgroup is the last to read, on to the next.
  __device__ __forceinline__ void release() {
    if (lane() == 0) arrive(shared.empty(place.stage, part));
    place.advance();
  }
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(0xFFFFFFFFu, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] *= factor[i / 2 % 2];
  }
  __device__ __forceinline__ TileLogEntry entry(int step) const {
    return TileLogEntry(kObserved ? args.log : DeviceTileLog{}, step, cta.work.batch, cta.work.first_head,
                        cta.work.first_block, cta.kv_tile(args, step), work_item(), part == 0 && thread == 0);
  }
  /// Its columns; there are fewer where V has.
  __device__ __forceinline__ int columns() const { return decode.columns - part * Shape::kHalfColumns; }
  __device__ __forceinline__ void log_output(int step) const {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const Entry place = accumulator_entry(thread, i);
      if (place.row < cta.rows.count && place.col < columns()) sum += static_cast<double>(out[i]);
    }
    entry(step).add(&DeviceTileState::accum, sum);
  }

  /// finish: normalised rows, in fp32 where the keys are split.
  __device__ __forceinline__ void store(const float (&normaliser)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] *= normaliser[i / 2 % 2];
    const int rows = cta.rows.count - first_row(), first = part * Shape::kHalfColumns;
    // Rows of a tile are some way apart, of a head or of another: each lane finds its own two.
    const auto store_from = [&](const auto& row_at, const auto& store_rows) {
      const int upper = cta.rows.has(row(0)) ? row(0) : 0, lower = cta.rows.has(row(1)) ? row(1) : upper;
      auto* const to = row_at(upper) + first;
      store_rows(out, to, 0, RowHalves{row_at(lower) + first - to, {rows, rows - 8}}, columns(), lane());
    };
    if (decode.splits.count > 1) {
      store_from(
          [&](int row) { return cta.rows.at(args[TensorName::out_partial], decode, cta.work.split, row); },
          [](auto&&... of) { store_rows_fp32(of...); });
    } else {
      store_from([&](int row) { return cta.rows.template at<std::uint16_t>(args[TensorName::out], row); },
                 [](auto&&... of) { store_rows_direct<kType>(of...); });
    }
  }
};

/// The first: scores, their softmax, the left columns of O.
template <WgmmaType kType, bool kObserved>
struct ScoreConsumer : Consumer<kType, kObserved> {
  using Base = Consumer<kType, kObserved>;
  using Base::args, Base::cta, Base::shared, Base::thread, Base::place, Base::out, Base::lane, Base::row;
  static constexpr int kScores = Shape::kKeys / 2;

  float max[2] = {kMinusInfinity, kMinusInfinity}, sum[2] = {0.0f, 0.0f};
  float scores[kScores];
  std::uint32_t probs[kScores / 2];
  sm80::SeenKeys seen;
  float scale;

  __device__ __forceinline__ explicit ScoreConsumer(const Base& base)
      : Base(base),
        seen(batch_band<true>(base.args, base.cta.work.batch), base.cta.rows.from(base.first_row()),
             base.lane()),
        scale(exponent_scale(base.args)) {}

  /// Issues S = Q K^T of the tile at `from`, part by part as it comes, a group each.
  __device__ __forceinline__ void multiply_scores(const RingPlace<Shape::kStages>& from) {
    const TileOperand<Shape::q_tile(), Major::k> q(shared.q());
    const TileOperand<Shape::key_tile(), Major::k> k(shared.k(from.stage));
#pragma unroll
    for (int part = 0; part < Shape::kParts; ++part) {
      wait(shared.full(from.stage, part), from.full_parity(), "a part of K");
      fence_wgmma();
#pragma unroll
      for (int step = 0; step < MlaShape::kHeadDim / 16; ++step) {
        if (!Shape::in_part(step / 4, part)) continue;
        multiply<Shape::kKeys, kType>(scores, q.at(step), k.at(step), part > 0 || step > 0);
      }
      commit_wgmma();
    }
  }
  /// Products become scores: with the sign of the scale, -inf where a query does not see the key.
  __device__ __forceinline__ void mask(int n_block) {
    const int lane_key = n_block * Shape::kKeys + 2 * (lane() & 3);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int half = i / 2 % 2, key = lane_key + 8 * (i / 4) + i % 2;
      scores[i] =
          key < seen.first[half] || key > seen.last[half] ? kMinusInfinity : args.score_sign * scores[i];
    }
  }
  /// One tile of the online softmax. @param factor  what sums and O of before take
  __device__ __forceinline__ void softmax(float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float new_max = max[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) new_max = fmaxf(new_max, fmaxf(scores[i], scores[i + 1]));
      new_max = row_max_of_quad(new_max);
      const float shift = exponent_shift(new_max, scale);
      factor[half] = new_max == max[half] ? 1.0f : rescale_factor(max[half], scale, shift);
      max[half] = new_max;
      float here = 0.0f;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
        scores[i] = exp2_approx(score_exponent(scores[i], scale, shift));
        scores[i + 1] = exp2_approx(score_exponent(scores[i + 1], scale, shift));
        here += scores[i] + scores[i + 1];
      }
      sum[half] = fmaf(sum[half], factor[half], here);
    }
  }
  /// Leaves P and the factors for the other warpgroup, once it is through with those before.
  __device__ __forceinline__ void tell(int step, const float (&factor)[2]) {
    if (step > 0) wait(shared.probs_read(), (step - 1) & 1, "the reader of P");
    store_operand<Shape::probs_tile()>(probs, shared.p() + 128 * this->first_row(), 0, lane());
    if (lane() % 4 == 0) shared.factors()[row(0)] = factor[0], shared.factors()[row(1)] = factor[1];
    fence_async_proxy();
    arrive(shared.probs_there());
  }
  __device__ __forceinline__ void multiply_values() {
    gemm<kType>(out, probs, this->values());
    commit_wgmma();
  }
  /// From the scores of a step to P, which both warpgroups then multiply.
  __device__ __forceinline__ void turn_to_probs(int step) {
    if (thread == 0) note_step(args.clock, step, work_item());
    const int n_block = cta.kv_tile(args, step);
    if (kObserved || !cta.range.full(n_block) || args.score_sign < 0.0f) mask(n_block);
    if constexpr (kObserved) {
      log_masked(this->entry(step), &DeviceTileState::scores, scores, cta.rows.count, thread);
    }
    float factor[2];
    softmax(factor);
    pack_operands<kType>(scores, probs);
    if constexpr (kObserved) {
      log_rows(this->entry(step), max, sum, cta.rows.count, thread);
      log_pairs<kType>(this->entry(step), &DeviceTileState::probs, probs, cta.rows.count, thread);
    }
    tell(step, factor);
    this->rescale(factor);
    fence_wgmma();
  }

  __device__ __forceinline__ void run() {
    const int last = cta.range.count() - 1;
    if (last >= 0) {
      multiply_scores(place);
      wait_for_wgmma<0>();
      for (int step = 0; step < last; ++step) {
        turn_to_probs(step);
        multiply_values();
        multiply_scores(place.next());  // of the next tile, behind P V of this one
        wait_for_wgmma<Shape::kParts>();
        this->release();
        if constexpr (kObserved) this->log_output(step);
        wait_for_wgmma<0>();
        arrive(shared.scores_there());
      }
      turn_to_probs(last);
      multiply_values();
      wait_for_wgmma<0>();
      if constexpr (kObserved) this->log_output(last);
    }
    finish();
  }
  __device__ __forceinline__ void finish() {
    float normaliser[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_row = row_sum_of_quad(sum[half]);
      normaliser[half] = inverse_sum(of_row);
      if (lane() % 4 != 0) continue;
      shared.normalisers()[row(half)] = normaliser[half];
      if (!cta.rows.has(row(half))) continue;
      float* const lse =
          this->decode.splits.count > 1
              ? cta.rows.at(args[TensorName::lse_partial], this->decode, cta.work.split, row(half))
              : cta.rows.template at<float>(args[TensorName::lse], row(half));
      *lse = row_lse(max[half], fabsf(args.softmax_scale), of_row);
    }
    arrive(shared.normalisers_there());
    this->store(normaliser);
  }
};

/// The second: the right columns of O.
template <WgmmaType kType, bool kObserved>
struct ValueConsumer : Consumer<kType, kObserved> {
  using Base = Consumer<kType, kObserved>;
  using Base::cta, Base::shared, Base::place, Base::out;

  __device__ __forceinline__ explicit ValueConsumer(const Base& base) : Base(base) {}

  __device__ __forceinline__ void numbers_of_rows(const float* from, float (&numbers)[2]) const {
    numbers[0] = from[this->row(0)], numbers[1] = from[this->row(1)];
  }
  __device__ __forceinline__ void run() {
    float factor[2];
    for (int step = 0; step < cta.range.count(); ++step) {
      const bool more = step + 1 < cta.range.count();
      wait(shared.probs_there(), step & 1, "P");
      if (cta.lags && more) wait(shared.scores_there(), step & 1, "the next scores");
      numbers_of_rows(shared.factors(), factor);
      this->rescale(factor);
      wait(shared.full(place.stage, this->part), place.full_parity(), "a part of V");
      fence_wgmma();
      gemm<kType, Shape::kKeys, true>(out, TileOperand<Shape::probs_tile(), Major::k>(shared.p()),
                                      this->values());
      commit_wgmma();
      wait_for_wgmma<0>();
      arrive(shared.probs_read());
      this->release();
      if constexpr (kObserved) this->log_output(step);
    }
    wait(shared.normalisers_there(), 0, "the normalisers");
    numbers_of_rows(shared.normalisers(), factor);
    this->store(factor);
  }
};

}  // namespace tilescope::mla_wgmma
