// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/exact_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/judge/fp8_dot.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// Rows of a head in fp64, one at a time.
class RowReader {
 public:
  explicit RowReader(const Tensor& tensor)
      : tensor_(&tensor), narrow_(tensor.shape().cols), wide_(narrow_.size()) {}
  const std::vector<double>& operator()(std::int64_t row) {
    widen(tensor_->dtype(), tensor_->row(0, 0, row), narrow_.data(),
          static_cast<std::int64_t>(narrow_.size()));
    std::copy(narrow_.begin(), narrow_.end(), wide_.begin());
    return wide_;
  }

 private:
  const Tensor* tensor_;
  std::vector<float> narrow_;
  std::vector<double> wide_;
};

struct RowProducts {
  double sum = 0, abs_sum = 0, norm = 0;
};
RowProducts products(const std::vector<double>& a, const std::vector<double>& b) {
  RowProducts result;
  double squares = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const double product = a[d] * b[d];
    result.sum += product;
    result.abs_sum += std::abs(product);
    squares += product * product;
  }
  result.norm = std::sqrt(squares);
  return result;
}
double max_abs(const std::vector<double>& row) {
  double largest = 0;
  for (double value : row) largest = std::max(largest, std::abs(value));
  return largest;
}
void add_scaled(std::vector<double>& sum, double factor, const std::vector<double>& row) {
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += factor * row[d];
}

/// What a head's rows are multiplied by.
class HeadDescales {
 public:
  HeadDescales(const TensorSet& descales, std::int64_t batch_head)
      : descales_(descales),
        batch_(batch_head / descales.problem().heads),
        head_(batch_head % descales.problem().heads),
        head_kv_(head_ / descales.problem().group_size()) {}
  double of_query(std::int64_t row) const { return at(q, head_, row); }
  double of_key(std::int64_t row) const { return at(k, head_kv_, row); }
  double of_value(std::int64_t row) const { return at(v, head_kv_, row); }

 private:
  double at(TensorName name, std::int64_t head, std::int64_t row) const {
    return static_cast<double>(descales_.descale(name, batch_, head, row));
  }
  const TensorSet& descales_;
  std::int64_t batch_, head_, head_kv_;
};

/// One query against all keys of its head.
class QueryRow {
 public:
  QueryRow(const TensorSet& made, const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t batch_head,
           std::int64_t query, Fp8Sums sums)
      : problem_(made.problem()), descales_(made, batch_head), k_(k), v_(v), query_(query) {
    const AttentionProblem& problem = problem_;
    const ExactScores modified(made);
    const std::vector<double> q_row = RowReader(q)(query);
    for (std::int64_t j = 0; j < problem.seqlen_k; ++j) {
      if (!mask_allows(problem, batch_head, query, j)) continue;
      const std::vector<double>& k_row = k_(j);
      RowProducts product = products(q_row, k_row);
      if (sums != Fp8Sums::fp32) {
        product.sum = fp8_dot(problem.dtype, q_row.data(), k_row.data(), problem.head_dim);
      }
      const double scale = problem.scale() * descales_.of_query(query) * descales_.of_key(j);
      keys_.push_back(j);
      scores_.push_back(modified(batch_head, query, j, scale * product.sum));
      pairs_.push_back(
          {.abs_score = std::abs(scale) * product.abs_sum, .derivative = scores_.back().derivative});
    }
    const std::optional<double> sink = modified.sink(batch_head);
    double largest = sink.value_or(-std::numeric_limits<double>::infinity());
    for (const ExactScore& score : scores_) largest = std::max(largest, score.value);
    double sum = sink ? std::exp(*sink - largest) : 0.0;
    for (const ExactScore& score : scores_) sum += std::exp(score.value - largest);
    lse_ = sum == 0 ? largest : largest + std::log(sum);
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      pairs_[t].prob = std::exp(scores_[t].value - lse_);
      pairs_[t].abs_score += added_terms(scores_[t], pairs_[t].prob);
      pairs_[t].kept = dropout_factor(problem, batch_head, query, keys_[t]);
    }
  }

  ExactRow lse() const {
    ExactRow row{{lse_}, {}};
    row.scale.lse = std::isinf(lse_) ? 0 : std::abs(lse_);
    for (const PairTerms& pair : pairs_) row.scale.score = std::max(row.scale.score, pair.abs_score);
    return row;
  }

  ExactRow out() {
    ExactRow row{std::vector<double>(problem_.value_dim()), {}};
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const std::vector<double>& v = v_(keys_[t]);
      const double descale = descales_.of_value(keys_[t]);
      add_scaled(row.values, pairs_[t].prob * pairs_[t].kept * descale, v);
      pairs_[t].add_to_out(row.scale, max_abs(v) * descale);
    }
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const std::vector<double>& v = v_(keys_[t]);
      const double kept = pairs_[t].kept * descales_.of_value(keys_[t]);
      double distance = 0;
      for (std::size_t d = 0; d < v.size(); ++d) {
        distance = std::max(distance, std::abs(kept * v[d] - row.values[d]));
      }
      row.scale.by_probs += pairs_[t].prob * distance;
    }
    take_root(row.scale);
    return row;
  }

  ExactRow dq(const Tensor& dout_head) {
    const std::vector<double> dout = RowReader(dout_head)(query_);
    QueryTerms terms{.abs_lse = std::abs(lse_)};
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const RowProducts product = products(dout, v_(keys_[t]));
      pairs_[t].dprob = pairs_[t].kept * product.sum;
      pairs_[t].abs_dprob = pairs_[t].kept * product.abs_sum;
      terms.delta += pairs_[t].prob * pairs_[t].dprob;
      terms.abs_delta += pairs_[t].prob * pairs_[t].abs_dprob;
    }
    terms.out_norm = products(dout, out().values).norm;
    ExactRow row{std::vector<double>(problem_.head_dim), {}};
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const std::vector<double>& k = k_(keys_[t]);
      const double slope = problem_.scale() * pairs_[t].derivative;
      add_scaled(row.values, slope * pairs_[t].prob * (pairs_[t].dprob - terms.delta), k);
      terms.add_to_gradient(row.scale, pairs_[t], std::abs(problem_.scale()), max_abs(k));
    }
    take_root(row.scale);
    return row;
  }

 private:
  const AttentionProblem& problem_;
  HeadDescales descales_;
  RowReader k_, v_;
  std::int64_t query_;
  std::vector<std::int64_t> keys_;  // that the query sees
  std::vector<ExactScore> scores_;
  std::vector<PairTerms> pairs_;
  double lse_ = 0;
};

}  // namespace

ExactForward exact_forward(const TensorSet& made, const Tensor& q, const Tensor& k, const Tensor& v,
                           std::int64_t batch_head, std::int64_t query, Fp8Sums sums) {
  QueryRow row(made, q, k, v, batch_head, query, sums);
  return {row.out(), row.lse()};
}

ExactRow exact_dq(const TensorSet& made, const QueryHead& head, const Tensor& k, const Tensor& v,
                  std::int64_t query) {
  return QueryRow(made, head.q, k, v, head.batch_head, query, Fp8Sums::fp32).dq(head.dout);
}

QueryHead query_head(std::int64_t batch_head, Tensor q, Tensor dout, const Tensor& out, Tensor lse) {
  QueryHead head{batch_head, std::move(q), std::move(dout), std::move(lse), {}};
  const std::int64_t rows = out.shape().rows;
  head.queries.resize(static_cast<std::size_t>(rows));
  parallel_for_each(
      rows, [&head, dout_row = RowReader(head.dout), out_row = RowReader(out)](std::int64_t i) mutable {
        const RowProducts product = products(dout_row(i), out_row(i));
        head.queries[static_cast<std::size_t>(i)] = {std::abs(static_cast<double>(head.lse.get(i))),
                                                     product.sum, product.abs_sum, product.norm};
      });
  return head;
}

KeyGradients key_gradients(const TensorSet& made, const std::vector<QueryHead>& heads, const Tensor& k_head,
                           const Tensor& v_head, std::int64_t key) {
  const AttentionProblem& p = made.problem();
  const ExactScores modified(made);
  const std::vector<double> k = RowReader(k_head)(key), v = RowReader(v_head)(key);
  KeyGradients gradients{{std::vector<double>(k.size()), {}}, {std::vector<double>(v.size()), {}}};
  for (const QueryHead& head : heads) {
    RowReader q_row(head.q), dout_row(head.dout);
    for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
      if (!mask_allows(p, head.batch_head, i, key)) continue;
      const QueryTerms& query = head.queries[static_cast<std::size_t>(i)];
      const std::vector<double>&q = q_row(i), &dout = dout_row(i);
      const RowProducts score = products(q, k), dprob = products(dout, v);
      const double kept = dropout_factor(p, head.batch_head, i, key);
      const ExactScore exact = modified(head.batch_head, i, key, p.scale() * score.sum);
      const double prob = std::exp(exact.value - static_cast<double>(head.lse.get(i)));
      const PairTerms pair{std::abs(p.scale()) * score.abs_sum + added_terms(exact, prob),
                           prob,
                           kept,
                           exact.derivative,
                           kept * dprob.sum,
                           kept * dprob.abs_sum,
                           std::abs(p.scale() * score.sum)};
      add_scaled(gradients.dv.values, pair.prob * kept, dout);
      add_scaled(gradients.dk.values, p.scale() * pair.derivative * pair.prob * (pair.dprob - query.delta),
                 q);
      pair.add_to_dv(gradients.dv.scale, query.abs_lse, max_abs(dout));
      query.add_to_gradient(gradients.dk.scale, pair, std::abs(p.scale()), max_abs(q));
    }
  }
  take_root(gradients.dk.scale);
  take_root(gradients.dv.scale);
  return gradients;
}

}  // namespace tilescope
