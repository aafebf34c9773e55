// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/error_scale.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu_ref/judge/compare.hpp"

namespace tilescope {
namespace {

/// A tensor in fp64 with the largest magnitude of each row.
struct Rows {
  std::vector<double> values, max_abs;
  std::int64_t cols = 1;

  Rows() = default;
  explicit Rows(const Tensor& tensor) : values(to_fp64(tensor)), cols(tensor.shape().cols) {
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(cols)) {
      double largest = 0;
      for (std::int64_t d = 0; d < cols; ++d) largest = std::max(largest, std::abs(values[i + d]));
      max_abs.push_back(largest);
    }
  }
  const double* row(std::int64_t index) const { return &values[index * cols]; }
};

/// Of the products of two rows.
struct DotTerms {
  double sum = 0, abs_sum = 0, norm = 0;
};

DotTerms dot_terms(const double* a, const double* b, std::int64_t cols) {
  DotTerms terms;
  for (std::int64_t d = 0; d < cols; ++d) {
    const double product = a[d] * b[d];
    terms.sum += product;
    terms.abs_sum += std::abs(product);
    terms.norm += product * product;
  }
  terms.norm = std::sqrt(terms.norm);
  return terms;
}

void raise(ErrorScale& largest, const ErrorScale& other) {
  for (double ErrorScale::*member :
       {&ErrorScale::score, &ErrorScale::out, &ErrorScale::dv, &ErrorScale::dq, &ErrorScale::dk,
        &ErrorScale::out_by_probs, &ErrorScale::dq_by_probs, &ErrorScale::dk_by_probs, &ErrorScale::dq_by_out,
        &ErrorScale::dk_by_out}) {
    largest.*member = std::max(largest.*member, other.*member);
  }
}

/// One key/value head with the query heads that share it.
class HeadPass {
 public:
  HeadPass(const TensorSet& inputs, const ExactAttention& exact)
      : problem_(inputs.problem()),
        exact_(exact),
        gradients_(!exact.dq.empty()),
        q_(inputs[TensorName::q]),
        k_(inputs[TensorName::k]),
        v_(inputs[TensorName::v]) {
    if (gradients_) dout_ = Rows(inputs[TensorName::dout]);
  }

  ErrorScale run(std::int64_t batch_head_kv) const {
    const AttentionProblem& p = problem_;
    ErrorScale largest;
    std::vector<ErrorScale> columns(p.seqlen_k);
    std::vector<Entry> row(p.seqlen_k);
    for (std::int64_t member = 0; member < p.group_size(); ++member) {
      const std::int64_t batch_head = batch_head_kv * p.group_size() + member;
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        const double abs_delta = fill_row(batch_head_kv, batch_head, i, row, largest);
        if (gradients_) {
          add_gradients(batch_head_kv, batch_head * p.seqlen_q + i, abs_delta, row, columns, largest);
        }
      }
    }
    for (const ErrorScale& column : columns) raise(largest, column);
    return largest;
  }

 private:
  /// Of one (query, key) pair; a hidden one has P = 0.
  struct Entry {
    double prob = 0, kept = 0, dprob = 0, abs_dprob = 0;
  };

  /// Computes the entries of query i. @return rowsum(P |dP|)
  double fill_row(std::int64_t batch_head_kv, std::int64_t batch_head, std::int64_t i,
                  std::vector<Entry>& row, ErrorScale& largest) const {
    const AttentionProblem& p = problem_;
    const std::int64_t query = batch_head * p.seqlen_q + i;
    double abs_delta = 0, out = 0, out_by_probs = 0;
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      Entry& entry = row[j] = {};
      if (!mask_allows(p, i, j)) continue;
      const std::int64_t key = batch_head_kv * p.seqlen_k + j;
      const double score = p.scale() * dot_terms(q_.row(query), k_.row(key), p.head_dim).sum;
      largest.score = std::max(largest.score, std::abs(score));
      entry.prob = std::exp(score - exact_.lse[query]);
      entry.kept = dropout_factor(p, batch_head, i, j);
      out += entry.kept * entry.prob * v_.max_abs[key];
      out_by_probs += entry.prob * distance_to_out(query, v_.row(key), entry.kept);
      if (!gradients_) continue;
      const DotTerms terms = dot_terms(dout_.row(query), v_.row(key), p.head_dim);
      entry.dprob = entry.kept * terms.sum;
      entry.abs_dprob = entry.kept * terms.abs_sum;
      abs_delta += entry.prob * entry.abs_dprob;
    }
    largest.out = std::max(largest.out, out);
    largest.out_by_probs = std::max(largest.out_by_probs, out_by_probs);
    return abs_delta;
  }

  /// @return max over the columns of |kept v - out|
  double distance_to_out(std::int64_t query, const double* v_row, double kept) const {
    const double* out = &exact_.out[query * problem_.head_dim];
    double largest = 0;
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) {
      largest = std::max(largest, std::abs(kept * v_row[d] - out[d]));
    }
    return largest;
  }

  void add_gradients(std::int64_t batch_head_kv, std::int64_t query, double abs_delta,
                     const std::vector<Entry>& row, std::vector<ErrorScale>& columns,
                     ErrorScale& largest) const {
    const std::int64_t cols = problem_.head_dim;
    const double scale = std::abs(problem_.scale());
    const double out_norm = dot_terms(dout_.row(query), &exact_.out[query * cols], cols).norm;
    const double q_max = q_.max_abs[query], dout_max = dout_.max_abs[query];
    ErrorScale sums;
    for (std::size_t j = 0; j < row.size(); ++j) {
      const Entry& entry = row[j];
      const double k_max = k_.max_abs[batch_head_kv * problem_.seqlen_k + static_cast<std::int64_t>(j)];
      const double terms = scale * entry.prob * (entry.abs_dprob + abs_delta);
      const double by_probs = scale * entry.prob * std::abs(entry.dprob - exact_.delta[query]);
      const double by_out = scale * entry.prob * out_norm;
      sums.dq += terms * k_max;
      sums.dq_by_probs += by_probs * k_max;
      sums.dq_by_out += by_out * k_max;
      columns[j].dk += terms * q_max;
      columns[j].dk_by_probs += by_probs * q_max;
      columns[j].dk_by_out += by_out * q_max;
      columns[j].dv += entry.prob * entry.kept * dout_max;
    }
    raise(largest, sums);
  }

  const AttentionProblem& problem_;
  const ExactAttention& exact_;
  bool gradients_;
  Rows q_, k_, v_, dout_;
};

}  // namespace

ErrorScale error_scale(const TensorSet& inputs, const ExactAttention& exact) {
  const HeadPass pass(inputs, exact);
  const std::int64_t heads = inputs.problem().batch * inputs.problem().heads_kv;
  ErrorScale largest;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t head = 0; head < heads; ++head) {
    const ErrorScale scale = pass.run(head);
#pragma omp critical
    raise(largest, scale);
  }
  return largest;
}

}  // namespace tilescope
