// SPDX-License-Identifier: Apache-2.0
// What a warpgroup's thread does with its part of the scores: the online softmax. Its part is that of
// accumulator_entry(): of two rows, every fourth pair of columns.
#pragma once

#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm80/softmax_math.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/stage_accumulator.cuh"

namespace tilescope::gpu {

/// Running maximum (of unscaled scores) and sum of a thread's two rows. Sums are the thread's own until the
/// end.
///
/// Rescaling is conditional. A maximum only keeps exponents in range, so it may lag behind the scores: P of a
/// tile is made from the maxima as they are, and if its sums stay below a bound (which they show at no cost),
/// so does P, and nothing has to be exchanged between lanes, compared or rescaled. Else, mostly in a row's
/// first tiles, the tile is done again with maxima raised to its own. The bound leaves fp16 a factor of 16
/// and costs no accuracy: P, its sums and O grow by the same power. (FlashAttention-4, arXiv:2603.05451,
/// skips rescales by a bound on the maxima.)
///
/// @tparam kPower  a P of 1 is kept as 2^kPower, and O and the sums with it, to use the range of 8-bit types
template <int kPower>
struct Flash3ScaledRows {
  static_assert(kPower >= 0);
  static constexpr float kLargestSum = 4096.0f;  // of a row's probabilities that a thread holds

  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0.0f, 0.0f};
  float shift[2] = {0.0f, 0.0f};  // -max, times the exponent's scale, plus the power
  float factor[2];                // what a raised maximum makes of what was summed before

  /// Before the first tile. Rows beyond the matrix may be whatever their buffer held: no score of theirs is
  /// to ask for a higher maximum.
  static __device__ __forceinline__ Flash3ScaledRows starting(bool inside) {
    Flash3ScaledRows rows;
    if (!inside) rows.max[0] = rows.max[1] = -kMinusInfinity;
    return rows;
  }

  /// Before the first tile: a term of the sum that has no value. One lane of a row's four has it.
  /// @param sink  in units of the scores; -inf: none
  __device__ __forceinline__ void begin_with_sink(float sink, int lane) {
    if (sink == kMinusInfinity || max[0] == -kMinusInfinity) return;
    max[0] = max[1] = sink;
    sum[0] = sum[1] = lane % 4 == 0 ? 1.0f : 0.0f;
  }

  /// Exponents of scores.
  __device__ __forceinline__ auto of_score(float exponent_scale) const {
    return [this, exponent_scale](int i, float score) {
      return score_exponent(score, exponent_scale, shift[i / 2 % 2]);
    };
  }

  /// Turns the scores into un-normalised probabilities, relative to the maxima as they are; `tile_sum` takes
  /// their sums.
  template <int kScores>
  __device__ __forceinline__ void exponentiate(float (&scores)[kScores], float exponent_scale,
                                               float (&tile_sum)[2]) const {
    exponentiate_by(scores, of_score(exponent_scale), tile_sum);
  }
  /// The same of other exponents. @param exponent  (int i, float score)
  template <int kScores, typename Exponent>
  __device__ __forceinline__ void exponentiate_by(float (&scores)[kScores], Exponent&& exponent,
                                                  float (&tile_sum)[2]) const {
    float chains[4] = {};
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      scores[i] = exp2_approx(exponent(i, scores[i]));
      chains[i % 4] += scores[i];
    }
    tile_sum[0] = chains[0] + chains[1];
    tile_sum[1] = chains[2] + chains[3];
  }
  /// The same as operands of P V, beside the scores.
  template <sm90::WgmmaType kType, int kScores>
  __device__ __forceinline__ void exponentiate_into(std::uint32_t (&probs)[kScores / 2],
                                                    const float (&scores)[kScores], float exponent_scale,
                                                    float (&tile_sum)[2]) const {
    exponentiate_into_by<kType>(probs, scores, of_score(exponent_scale), tile_sum);
  }
  template <sm90::WgmmaType kType, int kScores, typename Exponent>
  __device__ __forceinline__ void exponentiate_into_by(std::uint32_t (&probs)[kScores / 2],
                                                       const float (&scores)[kScores], Exponent&& exponent,
                                                       float (&tile_sum)[2]) const {
    float chains[2][2] = {};
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int half = i / 2 % 2;
      const float low = exp2_approx(exponent(i, scores[i]));
      const float high = exp2_approx(exponent(i + 1, scores[i + 1]));
      chains[half][0] += low;
      chains[half][1] += high;
      probs[i / 2] = sm90::pack_pair<kType>(low, high);
    }
    tile_sum[0] = chains[0][0] + chains[0][1];
    tile_sum[1] = chains[1][0] + chains[1][1];
  }
  /// Whether the maxima of this thread's rows keep P in range. Never those of a row that has seen no key; NaN
  /// stays what it is.
  __device__ __forceinline__ bool maxima_suffice(const float (&tile_sum)[2]) const {
    const auto small = [&](int half) {
      return !(tile_sum[half] > kLargestSum) && max[half] != kMinusInfinity;
    };
    return small(0) && small(1);
  }
  /// Raises the maxima to the tile's, where they lie below. @param descale  of these scores
  template <int kScores>
  __device__ __forceinline__ void raise_to(const float (&scores)[kScores], float exponent_scale,
                                           float descale = 1.0f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float chains[2] = {scores[2 * half], scores[2 * half + 1]};
#pragma unroll
      for (int i = 4; i < kScores; i += 4) {
        chains[0] = fmaxf(chains[0], scores[i + 2 * half]);
        chains[1] = fmaxf(chains[1], scores[i + 2 * half + 1]);
      }
      const float new_max = fmaxf(max[half], descale * row_max_of_quad(fmaxf(chains[0], chains[1])));
      // A row that has seen no key keeps -inf; its exponents are taken from 0, so that they stay -inf.
      shift[half] = new_max == kMinusInfinity ? 0.0f : shift_of(new_max, exponent_scale);
      // From the rounded shift, not from the maxima: what earlier tiles summed was 2^(s c + old shift).
      factor[half] = exp2_approx(shift[half] - shift_of(max[half], exponent_scale));
      sum[half] *= factor[half];
      max[half] = new_max;
    }
  }
  __device__ __forceinline__ void add(const float (&tile_sum)[2]) {
    sum[0] += tile_sum[0];
    sum[1] += tile_sum[1];
  }

  /// Takes in what the same thread of another warpgroup has of its rows' other keys.
  /// @param number  (int i): the i-th register of its O; behind them its maxima, then its sums
  template <int kOutputs, typename Number>
  __device__ __forceinline__ void join(float (&out)[kOutputs], float exponent_scale, Number&& number) {
    float other_factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float other_max = number(kOutputs + half), new_max = fmaxf(max[half], other_max);
      const float new_shift = new_max == kMinusInfinity ? 0.0f : shift_of(new_max, exponent_scale);
      factor[half] = exp2_approx(new_shift - shift_of(max[half], exponent_scale));
      other_factor[half] = exp2_approx(new_shift - shift_of(other_max, exponent_scale));
      sum[half] = fmaf(sum[half], factor[half], other_factor[half] * number(kOutputs + 2 + half));
      max[half] = new_max;
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      out[i] = fmaf(out[i], factor[i / 2 % 2], other_factor[i / 2 % 2] * number(i));
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void rescale(float (&out)[kOutputs]) const {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] *= factor[i / 2 % 2];
  }

  /// Sums become the rows'; O, in units of `unit`, is normalised. A row that saw no key gives O = 0.
  template <int kOutputs>
  __device__ __forceinline__ void finish(float (&out)[kOutputs], float unit = 1.0f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = row_sum_of_quad(sum[half]);
      factor[half] = max[half] == kMinusInfinity ? 0.0f : __fdividef(unit, sum[half]);
    }
    rescale(out);
  }
  /// After finish(). -inf for a row that saw no key.
  __device__ __forceinline__ float log_sum_exp(int half, float softmax_scale) const {
    constexpr float kUnscaled = 1.0f / (1 << kPower);  // exact
    return max[half] == kMinusInfinity ? kMinusInfinity
                                       : fmaf(max[half], softmax_scale, logf(sum[half] * kUnscaled));
  }

 private:
  static __device__ __forceinline__ float shift_of(float row_max, float exponent_scale) {
    if constexpr (kPower == 0) return __fmul_rn(-row_max, exponent_scale);
    return fmaf(-row_max, exponent_scale, kPower);
  }
};
using Flash3Rows = Flash3ScaledRows<0>;

}  // namespace tilescope::gpu
