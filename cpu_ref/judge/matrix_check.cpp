// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/matrix_check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/numeric/rounding_interval.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// One (batch, head) plane of the matrices and the rows of its inputs, in fp64.
class PlaneCheck {
 public:
  PlaneCheck(const TileProgram& program, const TensorSet& tensors)
      : program_(program), p_(program.problem), scale_(program.problem), scores_(tensors) {
    switch (program.name) {
      case PassName::scores:
        take(tensors, scores, q, k);
        break;
      case PassName::softmax:
        take(tensors, probs, scores, scores);
        break;
      case PassName::dprobs:
        take(tensors, dprobs, dout, v);
        break;
      default:
        take(tensors, dscores, probs, dprobs);
        if (change_gradients(p_.score_mods)) stored_scores_ = to_fp64(tensors[scores]);
        break;
    }
  }

  std::optional<WrongElement> run(std::int64_t batch_head) const {
    const TileShape tile = program_.tile;
    for (std::int64_t first_query = 0; first_query < p_.seqlen_q; first_query += tile.block_m) {
      std::vector<std::vector<ExactSum>> rows;
      const std::int64_t end_query = std::min<std::int64_t>(p_.seqlen_q, first_query + tile.block_m);
      for (std::int64_t i = first_query; i < end_query; ++i) rows.push_back(expected_row(batch_head, i));
      for (std::int64_t first_key = 0; first_key < p_.seqlen_k; first_key += tile.block_n) {
        const std::int64_t end_key = std::min<std::int64_t>(p_.seqlen_k, first_key + tile.block_n);
        for (std::int64_t i = first_query; i < end_query; ++i) {
          for (std::int64_t j = first_key; j < end_key; ++j) {
            const ExactSum& expected =
                rows[static_cast<std::size_t>(i - first_query)][static_cast<std::size_t>(j)];
            const double value = stored_[(batch_head * p_.seqlen_q + i) * p_.seqlen_k + j];
            if (expected.admits(value)) continue;
            return WrongElement{matrix_, batch_head / p_.heads, batch_head % p_.heads, i, j,
                                value,   expected.value,        expected.tolerance};
          }
        }
      }
    }
    return std::nullopt;
  }

 private:
  void take(const TensorSet& tensors, TensorName stored, TensorName left, TensorName right) {
    matrix_ = stored;
    dtype_ = tensor_extent(p_, stored).dtype;
    stored_ = to_fp64(tensors[stored]);
    left_ = input_in_fp64(tensors, left);
    right_ = input_in_fp64(tensors, right);
    if (!ends_at_padding(right)) return;  // padding is read as zero
    for (std::int64_t batch_head_kv = 0; batch_head_kv < p_.batch * p_.heads_kv; ++batch_head_kv) {
      const std::int64_t keys = p_.keys_of(batch_head_kv / p_.heads_kv), first = batch_head_kv * p_.seqlen_k;
      const std::int64_t cols = depth();
      std::fill(right_.begin() + (first + keys) * cols, right_.begin() + (first + p_.seqlen_k) * cols, 0.0);
    }
  }

  /// Of the products that the matrix is made of.
  std::int64_t depth() const { return matrix_ == dprobs ? p_.value_dim() : p_.head_dim; }

  std::vector<ExactSum> expected_row(std::int64_t batch_head, std::int64_t i) const {
    switch (matrix_) {
      case scores:
        return product_row(batch_head, i, scale_.sign / std::sqrt(static_cast<double>(p_.head_dim)));
      case dprobs:
        return product_row(batch_head, i, 1.0);
      case probs:
        return softmax_row(batch_head, i);
      default:
        return gradient_row(batch_head, i);
    }
  }

  /// factor * left row i times every row of the key/value head.
  std::vector<ExactSum> product_row(std::int64_t batch_head, std::int64_t i, double factor) const {
    const double* left = &left_[(batch_head * p_.seqlen_q + i) * depth()];
    const double* right = &right_[batch_head / p_.group_size() * p_.seqlen_k * depth()];
    std::vector<ExactSum> row;
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j, right += depth()) {
      const SlackProduct product = slack_dot(left, right, depth());
      row.push_back(rounded_interval(dtype_, factor * product.value, std::abs(factor) * product.slack));
    }
    return row;
  }

  /// Of stored scores: a scaled score is so many times one of them.
  double stored_scale() const { return std::abs(p_.scale()) * std::sqrt(static_cast<double>(p_.head_dim)); }
  /// Relative error of a derivative.
  double modifier_slack() const { return stored_scores_.empty() ? 0.0 : kSumSlack; }
  double derivative(std::int64_t batch_head, std::int64_t i, std::int64_t j) const {
    if (stored_scores_.empty()) return 1;
    const double stored = stored_scores_[(batch_head * p_.seqlen_q + i) * p_.seqlen_k + j];
    return scores_(batch_head, i, j, stored_scale() * stored).derivative;
  }

  /// Softmax of the stored scores.
  std::vector<ExactSum> softmax_row(std::int64_t batch_head, std::int64_t i) const {
    const double* stored_scores = &left_[(batch_head * p_.seqlen_q + i) * p_.seqlen_k];
    const std::optional<double> sink = scores_.sink(batch_head);
    double maximum = sink.value_or(-std::numeric_limits<double>::infinity());
    std::vector<ExactScore> taken(p_.seqlen_k);
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j) {
      if (!mask_allows(p_, batch_head, i, j)) continue;
      taken[j] = scores_(batch_head, i, j, stored_scale() * stored_scores[j]);
      maximum = std::max(maximum, taken[j].value);
    }
    double sum = sink ? std::exp(*sink - maximum) : 0.0;
    std::vector<double> exponentials(p_.seqlen_k);
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j) {
      if (mask_allows(p_, batch_head, i, j)) sum += exponentials[j] = std::exp(taken[j].value - maximum);
    }
    std::vector<ExactSum> row;
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j) {
      const double exponent =
          std::abs(stored_scale() * stored_scores[j]) + taken[j].added + std::abs(maximum);
      const double value = sum == 0 ? 0 : scale_.probs_factor * exponentials[j] / sum;
      const double slack = value * (kSumSlack + kRoundingSlack * exponent) + kSmallestExponential;
      row.push_back(mask_allows(p_, batch_head, i, j) ? rounded_interval(dtype_, value, slack) : ExactSum{});
    }
    return row;
  }

  /// dS of the stored P and dP.
  std::vector<ExactSum> gradient_row(std::int64_t batch_head, std::int64_t i) const {
    const std::int64_t start = (batch_head * p_.seqlen_q + i) * p_.seqlen_k;
    double delta = 0, terms = 0;
    std::vector<double> kept(p_.seqlen_k);
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j) {
      kept[j] = dropout_factor(p_, batch_head, i, j) * right_[start + j];
      delta += left_[start + j] * kept[j];
      terms += std::abs(left_[start + j] * kept[j]);
    }
    std::vector<ExactSum> row;
    for (std::int64_t j = 0; j < p_.seqlen_k; ++j) {
      const double prob = left_[start + j];
      const double slack =
          prob * (kSumSlack * terms + kRoundingSlack * (std::abs(kept[j]) + std::abs(delta)));
      const double slope = derivative(batch_head, i, j);
      const double dscore = prob * (kept[j] - delta) * slope;
      row.push_back(rounded_interval(dtype_, dscore, slack * slope + modifier_slack() * std::abs(dscore)));
    }
    return row;
  }

  const TileProgram& program_;
  const AttentionProblem& p_;
  KernelScale scale_;
  TensorName matrix_ = scores;
  ElementType dtype_ = ElementType::fp32;
  ExactScores scores_;
  std::vector<double> stored_, left_, right_;
  std::vector<double> stored_scores_;  // where derivatives are taken at them
};

}  // namespace

std::optional<WrongElement> first_wrong_element(const TileProgram& program, const TensorSet& tensors) {
  switch (program.name) {
    case PassName::scores:
    case PassName::softmax:
    case PassName::dprobs:
    case PassName::dscores:
      break;
    default:
      return std::nullopt;
  }
  const PlaneCheck check(program, tensors);
  for (std::int64_t plane = 0; plane < program.problem.batch * program.problem.heads; ++plane) {
    if (auto wrong = check.run(plane)) return wrong;
  }
  return std::nullopt;
}

}  // namespace tilescope
