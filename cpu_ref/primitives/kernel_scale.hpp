// SPDX-License-Identifier: Apache-2.0
// The softmax scale as the kernels use it: folded into the exponent, its sign put on Q.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/primitives/score_constants.hpp"
#include "cpu_ref/primitives/tile_math.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// What P is rounded to before it is multiplied by V: the element type; beside values in fp8 fp16 in place of
/// bf16. It holds their numbers too, P more exactly, and a GPU makes it of fp8 in one instruction.
inline ElementType probs_type(const AttentionProblem& problem) {
  return problem.kv_dtype && problem.dtype == ElementType::bf16 ? ElementType::fp16 : problem.dtype;
}

struct KernelScale {
  float signed_scale;    // of dQ and dK
  float magnitude;       // of m in lse = m * magnitude + ln(row_sum)
  float sign;            // -1: S is negated, so that its maximum is still the largest exponent
  SoftmaxScale softmax;  // of P
  float probs_factor;    // 2^softmax.log2_offset: P is kept this many times as large

  explicit KernelScale(const AttentionProblem& problem) {
    constexpr double largest = std::numeric_limits<float>::max();
    const double scale = std::clamp(problem.scale(), -largest, largest);
    signed_scale = static_cast<float>(scale);
    magnitude = std::fabs(signed_scale);
    sign = std::signbit(scale) ? -1.0f : 1.0f;
    softmax.log2 = exponent_scale(std::fabs(scale));
    // P lies in [0, 1], e4m3 reaches 448 and loses everything below 2^-10: FlashAttention-3's offset of 8
    // uses the range above 1, as far as dropout's keep_scale leaves it free.
    // Beside values in fp8 so does fp16, which reaches 65504: of bf16, in its place, small P would be lost.
    const bool fp16_probs = problem.kv_dtype && probs_type(problem) == ElementType::fp16;
    if (problem.dtype == ElementType::fp8e4m3 || fp16_probs) {
      const double most = fp16_probs ? 65504.0 : 448.0;
      softmax.log2_offset = static_cast<float>(std::floor(std::log2(most * (1.0 - problem.dropout))));
    }
    probs_factor = std::exp2(softmax.log2_offset);
  }

  /// scale * log2(e), in fp32. Never 0, so that a masked score (-inf) times it stays -inf; the products with
  /// all other scores then vanish.
  static float exponent_scale(double scale) {
    constexpr double smallest = kLeastExponentScale, largest = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(scale * std::numbers::log2e, smallest, largest));
  }
};

/// The scale where scores are stored (standard attention): S carries 1 / sqrt(head_dim) and the sign, so that
/// fp16 can hold it, and the softmax has the rest.
struct StoredScoreScale {
  float factor;  // of Q K^T in S
  float rest;    // of the maximum of S in the LSE
  float log2;    // the rest times log2(e)

  explicit StoredScoreScale(const AttentionProblem& problem) {
    const double root = std::sqrt(static_cast<double>(problem.head_dim));
    const double left = std::fabs(problem.scale()) * root;
    factor = KernelScale(problem).sign / static_cast<float>(root);
    rest = static_cast<float>(std::min<double>(left, std::numeric_limits<float>::max()));
    log2 = KernelScale::exponent_scale(left);
  }
};

/// What a sum that was taken relative to `old_max` takes to be relative to `new_max`.
inline float rescale_factor(float old_max, float new_max, SoftmaxScale scale) {
  return std::exp2((old_max - new_max) * scale.log2);
}

/// Natural-log row log-sum-exp; -inf for a row that saw no key.
/// @param row_max maximum score, times `scale` in units of the exponent of e
inline float log_sum_exp(float row_max, float scale, float row_sum) {
  return row_sum == 0.0f ? kMinusInfinity : row_max * scale + std::log(row_sum);
}

}  // namespace tilescope
