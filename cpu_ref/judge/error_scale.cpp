// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/error_scale.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

/// A tensor in fp64 with the largest magnitude of each row.
struct Rows {
  std::vector<double> values, max_abs;
  std::int64_t cols = 1;

  Rows() = default;
  Rows(const TensorSet& tensors, TensorName name)
      : values(input_in_fp64(tensors, name)), cols(tensors[name].shape().cols) {
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(cols)) {
      double largest = 0;
      for (std::int64_t d = 0; d < cols; ++d) largest = std::max(largest, std::abs(values[i + d]));
      max_abs.push_back(largest);
    }
  }
  const double* row(std::int64_t index) const { return &values[index * cols]; }
};

/// Sums over the products of two rows.
struct DotTerms {
  double sum = 0, abs_sum = 0, norm = 0;
};

/// By lanes, each with sums of its own, as the judge's products are.
DotTerms dot_terms(const double* a, const double* b, std::int64_t cols) {
  constexpr int kLanes = 4;
  double sum[kLanes] = {}, abs_sum[kLanes] = {}, norm[kLanes] = {};
  const auto add = [&](std::int64_t d, int lane) {
    const double product = a[d] * b[d];
    sum[lane] += product;
    abs_sum[lane] += std::abs(product);
    norm[lane] += product * product;
  };
  std::int64_t d = 0;
  for (; d + kLanes <= cols; d += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) add(d + lane, lane);
  }
  for (int lane = 0; d < cols; ++d, ++lane) add(d, lane);
  const auto total = [](const double* lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); };
  return {total(sum), total(abs_sum), std::sqrt(total(norm))};
}

void add_squared(TermScale& row, double term, double factor) {
  row.root += term * term;
  row.factors += factor * factor;
}

void add_square(double& sum, double value) { sum += value * value; }

/// One key/value head with the query heads that share it.
class HeadPass {
 public:
  HeadPass(const TensorSet& inputs, const ExactAttention& exact, ErrorScale& scale,
           std::vector<QueryTerms>& queries)
      : problem_(inputs.problem()),
        scores_(inputs),
        exact_(exact),
        scale_(scale),
        queries_(queries),
        gradients_(!exact.dq.empty()),
        q_(inputs, TensorName::q),
        k_(inputs, TensorName::k),
        v_(inputs, TensorName::v) {
    if (gradients_) dout_ = Rows(inputs, TensorName::dout);
  }

  /// Fills the rows of the head. @return the largest |score|
  double run(std::int64_t batch_head_kv) const {
    const AttentionProblem& p = problem_;
    double largest_score = 0;
    std::vector<PairTerms> row(p.seqlen_k);
    for (std::int64_t member = 0; member < p.group_size(); ++member) {
      const std::int64_t batch_head = batch_head_kv * p.group_size() + member;
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        const double abs_delta = fill_row(batch_head_kv, batch_head, i, row, largest_score);
        if (gradients_) add_gradients(batch_head_kv, batch_head * p.seqlen_q + i, abs_delta, row);
      }
    }
    if (!gradients_) return largest_score;
    for (std::int64_t key = batch_head_kv * p.seqlen_k; key < (batch_head_kv + 1) * p.seqlen_k; ++key) {
      take_root(scale_.dk[key]);
      take_root(scale_.dv[key]);
    }
    return largest_score;
  }

 private:
  /// Computes the entries of query i and the scale of its `out`. @return rowsum(P |dP|)
  double fill_row(std::int64_t batch_head_kv, std::int64_t batch_head, std::int64_t i,
                  std::vector<PairTerms>& row, double& largest_score) const {
    const AttentionProblem& p = problem_;
    const std::int64_t query = batch_head * p.seqlen_q + i;
    TermScale& out = scale_.out[query];
    double abs_delta = 0;
    // Stored scores that are equal tip together.
    struct {
      double score = std::numeric_limits<double>::quiet_NaN(), out = 0, lse = 0;
    } equal;
    const auto end_equal = [&] {
      add_square(out.stored, equal.out);
      add_square(out.stored_lse, equal.lse);
    };
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      PairTerms& entry = row[j] = {};
      if (!mask_allows(p, batch_head, i, j)) continue;
      const std::int64_t key = batch_head_kv * p.seqlen_k + j;
      const DotTerms products = dot_terms(q_.row(query), k_.row(key), p.head_dim);
      const double scaled = p.scale() * products.sum;
      const ExactScore score = scores_(batch_head, i, j, scaled);
      largest_score = std::max(largest_score, std::abs(scaled));
      entry.prob = std::exp(score.value - exact_.lse[query]);
      entry.scaled = std::abs(scaled);
      entry.abs_score = std::abs(p.scale()) * products.abs_sum + added_terms(score, entry.prob);
      entry.derivative = score.derivative;
      entry.kept = dropout_factor(p, batch_head, i, j);
      out.lse = std::abs(exact_.lse[query]);
      entry.add_to_out(out, v_.max_abs[key]);
      const double distance = distance_to_out(query, v_.row(key), entry.kept);
      out.by_probs += entry.prob * distance;
      if (scaled != equal.score) {
        end_equal();
        equal = {.score = scaled};
      }
      equal.out += entry.prob * entry.scaled * distance;
      equal.lse += entry.prob * entry.scaled;
      if (!gradients_) continue;
      const DotTerms terms = dot_terms(dout_.row(query), v_.row(key), p.value_dim());
      entry.dprob = entry.kept * terms.sum;
      entry.abs_dprob = entry.kept * terms.abs_sum;
      abs_delta += entry.prob * entry.abs_dprob;
    }
    end_equal();
    take_root(out);
    return abs_delta;
  }

  /// @return max over the columns of |kept v - out|
  double distance_to_out(std::int64_t query, const double* v_row, double kept) const {
    const double* out = &exact_.out[query * problem_.value_dim()];
    double largest = 0;
    for (std::int64_t d = 0; d < problem_.value_dim(); ++d) {
      largest = std::max(largest, std::abs(kept * v_row[d] - out[d]));
    }
    return largest;
  }

  void add_gradients(std::int64_t batch_head_kv, std::int64_t query, double abs_delta,
                     const std::vector<PairTerms>& row) const {
    const double scale = std::abs(problem_.scale());
    const double* out = &exact_.out[query * problem_.value_dim()];
    const QueryTerms terms{std::abs(exact_.lse[query]), exact_.delta[query], abs_delta,
                           dot_terms(dout_.row(query), out, problem_.value_dim()).norm};
    queries_[query] = terms;
    TermScale& dq = scale_.dq[query];
    for (std::size_t j = 0; j < row.size(); ++j) {
      const PairTerms& pair = row[j];
      if (pair.prob == 0) continue;
      const std::int64_t key = batch_head_kv * problem_.seqlen_k + static_cast<std::int64_t>(j);
      terms.add_to_gradient(dq, pair, scale, k_.max_abs[key]);
      terms.add_to_gradient(scale_.dk[key], pair, scale, q_.max_abs[query]);
      pair.add_to_dv(scale_.dv[key], terms.abs_lse, dout_.max_abs[query]);
    }
    take_root(dq);
  }

  const AttentionProblem& problem_;
  ExactScores scores_;
  const ExactAttention& exact_;
  ErrorScale& scale_;
  std::vector<QueryTerms>& queries_;
  bool gradients_;
  Rows q_, k_, v_, dout_;
};

/// What makes the error of each head's sink's gradient.
void add_sink_gradients(const TensorSet& inputs, const ExactAttention& exact,
                        const std::vector<QueryTerms>& queries, ErrorScale& scale) {
  const AttentionProblem& p = inputs.problem();
  const ExactScores scores(inputs);
  scale.dsink.resize(exact.dsink.size());
  for (std::size_t query = 0; query < queries.size(); ++query) {
    const std::int64_t batch_head = static_cast<std::int64_t>(query) / p.seqlen_q;
    const std::optional<double> sink = scores.sink(batch_head);
    if (!sink) continue;
    queries[query].add_to_dsink(scale.dsink[batch_head % p.heads], *sink, std::exp(*sink - exact.lse[query]));
  }
  for (TermScale& row : scale.dsink) take_root(row);
}

}  // namespace

void PairTerms::add_to_out(TermScale& out, double v_max) const {
  const double term = kept * prob * v_max;
  out.score = std::max(out.score, abs_score);
  out.sum += term;
  add_squared(out, term, v_max);
}

void PairTerms::add_to_dv(TermScale& dv, double abs_lse, double dout_max) const {
  const double term = prob * kept * dout_max;
  dv.score = std::max(dv.score, abs_score);
  dv.lse = std::max(dv.lse, abs_lse);
  dv.sum += term;
  add_square(dv.stored, term * scaled);
  add_squared(dv, term, dout_max);
}

void QueryTerms::add_to_gradient(TermScale& gradient, const PairTerms& pair, double scale,
                                 double factor) const {
  const double slope = scale * pair.derivative;
  const double dscore = slope * pair.prob * std::abs(pair.dprob - delta);
  gradient.score = std::max(gradient.score, pair.abs_score);
  gradient.lse = std::max(gradient.lse, abs_lse);
  gradient.sum += slope * pair.prob * (pair.abs_dprob + abs_delta) * factor;
  gradient.by_probs += dscore * factor;
  gradient.by_out += slope * pair.prob * out_norm * factor;
  add_square(gradient.stored, dscore * pair.scaled * factor);
  add_square(gradient.stored, slope * pair.prob * pair.dprob * factor);
  add_squared(gradient, dscore * factor, scale * factor);
  const double of_prob = slope * std::abs(pair.dprob - delta) * factor;
  gradient.probs_factors += of_prob * of_prob;
}

void QueryTerms::add_to_dsink(TermScale& dsink, double sink, double probability) const {
  dsink.score = std::max(dsink.score, std::abs(sink));
  dsink.lse = std::max(dsink.lse, abs_lse);
  dsink.sum += probability * abs_delta;
  dsink.by_probs += probability * std::abs(delta);
  dsink.by_out += probability * out_norm;
  add_square(dsink.by_out_root, probability * out_norm);
  add_squared(dsink, probability * delta, delta);
}

void take_root(TermScale& row) {
  row.root = std::sqrt(row.root);
  row.by_out_root = std::sqrt(row.by_out_root);
  row.factors = std::sqrt(row.factors);
  row.probs_factors = std::sqrt(row.probs_factors);
  row.stored = std::sqrt(row.stored);
  row.stored_lse = std::sqrt(row.stored_lse);
}

double one_ulp(ElementType type, double value) {
  constexpr int subnormal_exponents[] = {-149, -24, -133, -9, -16};  // in the order of ElementType
  const double least = std::exp2(subnormal_exponents[static_cast<std::size_t>(type)]);
  return value == 0 ? least
                    : std::max(least, epsilon(type) * std::exp2(std::floor(std::log2(std::abs(value)))));
}

/// A term has two relative errors: that of its P, of the size of the exponent, and that of what normalises it
/// (row_sum, or the LSE that a backward pass recomputes P from). In `out` the row_sum has the same errors of
/// P as the terms, which leaves those of v - out.
RoundingCost rounding_cost(const TermScale& terms, double score, double fp32_score, TensorName name) {
  const double exponent = 1 + score, fp32_exponent = 1 + fp32_score;
  switch (name) {
    case TensorName::out:
      return {2 * terms.sum + fp32_exponent * terms.by_probs, 0, exponent * terms.sum};
    case TensorName::lse:
      return {2 * fp32_exponent, 0, exponent};
    case TensorName::dq:
    case TensorName::dk:
    case TensorName::dsink:
      return {terms.sum + 2 * fp32_exponent * terms.by_probs, terms.by_out, exponent * terms.sum};
    default:
      return {2 * fp32_exponent * terms.sum, 0, exponent * terms.sum};
  }
}

const std::vector<TermScale>& ErrorScale::rows(TensorName output) const {
  switch (output) {
    case TensorName::out:
      return out;
    case TensorName::dq:
      return dq;
    case TensorName::dk:
      return dk;
    case TensorName::dv:
      return dv;
    case TensorName::dsink:
      return dsink;
    default:
      throw BadInput("tensor", std::string(to_string(output)), "must be out, dq, dk, dv or dsink");
  }
}

TermScale largest(const std::vector<TermScale>& rows) {
  TermScale result;
  for (const TermScale& row : rows) {
    for (double TermScale::*member :
         {&TermScale::score, &TermScale::lse, &TermScale::sum, &TermScale::by_probs, &TermScale::by_out,
          &TermScale::root, &TermScale::factors, &TermScale::probs_factors, &TermScale::stored,
          &TermScale::stored_lse}) {
      result.*member = std::max(result.*member, row.*member);
    }
  }
  return result;
}

ErrorScale error_scale(const TensorSet& inputs, const ExactAttention& exact) {
  const AttentionProblem& p = inputs.problem();
  const std::int64_t heads = p.batch * p.heads_kv, queries = p.batch * p.heads * p.seqlen_q;
  ErrorScale scale;
  scale.out.resize(queries);
  if (!exact.dq.empty()) {
    scale.dq.resize(queries);
    scale.dk.resize(heads * p.seqlen_k);
    scale.dv.resize(heads * p.seqlen_k);
  }
  std::vector<QueryTerms> terms(exact.dq.empty() ? 0 : queries);
  const HeadPass pass(inputs, exact, scale, terms);
  std::vector<double> largest_scores(heads);
  parallel_for_each(heads, [&](std::int64_t head) { largest_scores[head] = pass.run(head); });
  if (!exact.dsink.empty()) add_sink_gradients(inputs, exact, terms, scale);
  scale.score = *std::ranges::max_element(largest_scores);
  return scale;
}

}  // namespace tilescope
