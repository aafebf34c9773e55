// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/exact_score.hpp"

#include <cmath>

#include "cpu_ref/judge/compare.hpp"

namespace tilescope {

ExactScores::ExactScores(const TensorSet& inputs) : problem_(inputs.problem()) {
  if (problem_.score_mods.alibi) slopes_ = to_fp64(inputs[TensorName::alibi_slopes]);
  if (problem_.score_mods.learned_sink) sinks_ = to_fp64(inputs[TensorName::sink]);
}

ExactScore ExactScores::operator()(std::int64_t batch_head, std::int64_t query, std::int64_t key,
                                   double scaled) const {
  ExactScore score{.value = scaled};
  if (const double cap = problem_.score_mods.softcap; cap > 0) {
    const double x = scaled / cap, secant = 1 / std::cosh(x);  // overflows to a derivative of 0
    score.value = cap * std::tanh(x);
    score.derivative = secant * secant;
  }
  const std::int64_t diagonal = query + problem_.seqlen_k - problem_.seqlen_q;
  const auto distance = static_cast<double>(key > diagonal ? key - diagonal : diagonal - key);
  const auto subtract = [&score](double bias) {
    score.value -= bias;
    score.added += std::abs(bias);
  };
  if (problem_.score_mods.alibi) {
    subtract(slopes_[static_cast<std::size_t>(batch_head % problem_.heads)] * distance);
  }
  if (problem_.score_mods.log_bias > 0) subtract(problem_.score_mods.log_bias * std::log(1 + distance));
  return score;
}

std::optional<double> ExactScores::sink(std::int64_t batch_head) const {
  if (!problem_.score_mods.learned_sink) return std::nullopt;
  const double sink = sinks_[static_cast<std::size_t>(batch_head % problem_.heads)];
  if (std::isinf(sink) && sink < 0) return std::nullopt;
  return sink;
}

}  // namespace tilescope
