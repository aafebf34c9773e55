// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/exact_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

/// Adds `term` to sum + error without loss (Knuth's TwoSum).
inline void add_compensated(double& sum, double& error, double term) {
  const double total = sum + term;
  const double shadow = total - sum;
  error += (sum - (total - shadow)) + (term - shadow);
  sum = total;
}

/// The error term is NaN where the sum overflowed or met a NaN; the sum then says which.
inline double compensated_value(double sum, double error) { return std::isfinite(sum) ? sum + error : sum; }

struct CompensatedSum {
  double sum = 0, error = 0;
  void add(double term) { add_compensated(sum, error, term); }
  double value() const { return compensated_value(sum, error); }
};

/// A compensated sum of weighted rows of some length.
class CompensatedRow {
 public:
  explicit CompensatedRow(std::int64_t cols) : sum_(cols), error_(cols) {}
  void clear() {
    std::ranges::fill(sum_, 0.0);
    std::ranges::fill(error_, 0.0);
  }
  void add(double weight, const double* row) {
    for (std::size_t d = 0; d < sum_.size(); ++d) add_compensated(sum_[d], error_[d], weight * row[d]);
  }
  void store(double factor, double* row) const {
    for (std::size_t d = 0; d < sum_.size(); ++d) row[d] = factor * compensated_value(sum_[d], error_[d]);
  }

 private:
  std::vector<double> sum_, error_;
};

/// Pairwise by eight lanes: the rounding error grows with cols / 8.
double dot(const double* a, const double* b, std::int64_t cols) {
  double lanes[8] = {};
  std::int64_t d = 0;
  for (; d + 8 <= cols; d += 8) {
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += a[d + lane] * b[d + lane];
  }
  for (int lane = 0; d < cols; ++d, ++lane) lanes[lane] += a[d] * b[d];
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// Inputs in fp64, and the row maxima and sums that the gradients of K and V need again.
struct Workspace {
  const AttentionProblem& problem;
  double scale;
  ExactScores scores;
  std::vector<double> q, k, v, dout;
  std::vector<double> row_max, row_sum;  // of the scaled scores, and of exp(score - row_max)

  std::int64_t query_row(std::int64_t batch_head, std::int64_t i) const {
    return (batch_head * problem.seqlen_q + i) * problem.head_dim;
  }
  std::int64_t out_row(std::int64_t batch_head, std::int64_t i) const {
    return (batch_head * problem.seqlen_q + i) * problem.value_dim();
  }
  std::int64_t key_row(std::int64_t batch_head, std::int64_t j) const {
    return key_index(batch_head, j) * problem.head_dim;
  }
  std::int64_t value_row(std::int64_t batch_head, std::int64_t j) const {
    return key_index(batch_head, j) * problem.value_dim();
  }

 private:
  std::int64_t key_index(std::int64_t batch_head, std::int64_t j) const {
    const std::int64_t batch = batch_head / problem.heads, head = batch_head % problem.heads;
    const std::int64_t batch_head_kv = batch * problem.heads_kv + head / problem.group_size();
    return batch_head_kv * problem.seqlen_k + j;
  }
};

/// One query row: out and lse, and dq and delta when the gradients are asked for.
class RowPass {
 public:
  RowPass(Workspace& work, ExactAttention& result)
      : work_(work), result_(result), sum_(work.problem.value_dim()), dq_(work.problem.head_dim) {}

  void run(std::int64_t batch_head, std::int64_t i) {
    const AttentionProblem& p = work_.problem;
    const double* q = &work_.q[work_.query_row(batch_head, i)];
    const std::int64_t row = batch_head * p.seqlen_q + i;
    keys_.clear();
    probs_.clear();
    derivatives_.clear();
    double row_max = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      if (!mask_allows(p, batch_head, i, j)) continue;
      const double scaled = work_.scale * dot(q, &work_.k[work_.key_row(batch_head, j)], p.head_dim);
      const ExactScore score = work_.scores(batch_head, i, j, scaled);
      keys_.push_back(j);
      probs_.push_back(score.value);
      derivatives_.push_back(score.derivative);
      row_max = std::max(row_max, score.value);
    }
    const std::optional<double> sink = work_.scores.sink(batch_head);
    row_max = std::max(row_max, sink.value_or(row_max));
    CompensatedSum row_sum;
    if (sink) row_sum.add(std::exp(*sink - row_max));
    for (double& value : probs_) row_sum.add(value = std::exp(value - row_max));
    for (double& value : probs_) value /= row_sum.value();
    sum_.clear();
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      sum_.add(probs_[t] * dropout_factor(p, batch_head, i, keys_[t]),
               &work_.v[work_.value_row(batch_head, keys_[t])]);
    }
    sum_.store(1.0, &result_.out[work_.out_row(batch_head, i)]);
    work_.row_max[row] = row_max;
    work_.row_sum[row] = row_sum.value();
    result_.lse[row] = keys_.empty() && !sink ? -std::numeric_limits<double>::infinity()  // log(0) + -inf
                                              : row_max + std::log(row_sum.value());
    if (!result_.dq.empty()) gradient(batch_head, i);
  }

 private:
  void gradient(std::int64_t batch_head, std::int64_t i) {
    const AttentionProblem& p = work_.problem;
    const double* dout = &work_.dout[work_.out_row(batch_head, i)];
    dprobs_.resize(keys_.size());
    CompensatedSum delta;
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      dprobs_[t] = dropout_factor(p, batch_head, i, keys_[t]) *
                   dot(dout, &work_.v[work_.value_row(batch_head, keys_[t])], p.value_dim());
      delta.add(probs_[t] * dprobs_[t]);
    }
    dq_.clear();
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      dq_.add(probs_[t] * (dprobs_[t] - delta.value()) * derivatives_[t],
              &work_.k[work_.key_row(batch_head, keys_[t])]);
    }
    dq_.store(work_.scale, &result_.dq[work_.query_row(batch_head, i)]);
    result_.delta[batch_head * p.seqlen_q + i] = delta.value();
  }

  Workspace& work_;
  ExactAttention& result_;
  std::vector<std::int64_t> keys_;                    // that this query sees
  std::vector<double> probs_, dprobs_, derivatives_;  // one a visible key
  CompensatedRow sum_, dq_;
};

/// One key row: dk and dv, summed over the queries of all heads that share the key.
class ColumnPass {
 public:
  ColumnPass(const Workspace& work, ExactAttention& result)
      : work_(work), result_(result), dk_(work.problem.head_dim), dv_(work.problem.value_dim()) {}

  void run(std::int64_t batch_head_kv, std::int64_t j) {
    const AttentionProblem& p = work_.problem;
    const std::int64_t key = batch_head_kv * p.seqlen_k + j;
    const double* k = &work_.k[key * p.head_dim];
    const double* v = &work_.v[key * p.value_dim()];
    dk_.clear();
    dv_.clear();
    for (std::int64_t member = 0; member < p.group_size(); ++member) {
      const std::int64_t batch_head = batch_head_kv * p.group_size() + member;
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        if (!mask_allows(p, batch_head, i, j)) continue;
        const std::int64_t row = batch_head * p.seqlen_q + i;
        const double* q = &work_.q[work_.query_row(batch_head, i)];
        const double* dout = &work_.dout[work_.out_row(batch_head, i)];
        const ExactScore score = work_.scores(batch_head, i, j, work_.scale * dot(q, k, p.head_dim));
        const double prob = std::exp(score.value - work_.row_max[row]) / work_.row_sum[row];
        const double kept = dropout_factor(p, batch_head, i, j);
        dv_.add(prob * kept, dout);
        dk_.add(prob * (kept * dot(dout, v, p.value_dim()) - result_.delta[row]) * score.derivative, q);
      }
    }
    dk_.store(work_.scale, &result_.dk[key * p.head_dim]);
    dv_.store(1.0, &result_.dv[key * p.value_dim()]);
  }

 private:
  const Workspace& work_;
  ExactAttention& result_;
  CompensatedRow dk_, dv_;
};

/// - sum of exp(sink - LSE) * delta over the rows of each head.
std::vector<double> sink_gradients(const Workspace& work, const ExactAttention& result) {
  const AttentionProblem& p = work.problem;
  std::vector<double> gradients;
  for (std::int64_t head = 0; head < p.heads; ++head) {
    CompensatedSum sum;
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      const std::int64_t batch_head = batch * p.heads + head;
      const std::optional<double> sink = work.scores.sink(batch_head);
      for (std::int64_t row = batch_head * p.seqlen_q; sink && row < (batch_head + 1) * p.seqlen_q; ++row) {
        sum.add(-std::exp(*sink - result.lse[row]) * result.delta[row]);
      }
    }
    gradients.push_back(sum.value());
  }
  return gradients;
}

}  // namespace

double dropout_factor(const AttentionProblem& problem, std::int64_t batch_head, std::int64_t query,
                      std::int64_t key) {
  if (problem.dropout == 0) return 1.0;
  const Philox4 bits =
      philox4x32(problem.seed, {{static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(query),
                                 static_cast<std::uint32_t>(batch_head), 0u}});
  const bool kept = bits.x[key % 4] >= std::floor(problem.dropout * 4294967296.0);
  return kept ? 1.0 / (1.0 - problem.dropout) : 0.0;
}

std::span<const double> ExactAttention::operator[](TensorName name) const {
  switch (name) {
    case TensorName::out:
      return out;
    case TensorName::lse:
      return lse;
    case TensorName::delta:
      return delta;
    case TensorName::dq:
      return dq;
    case TensorName::dk:
      return dk;
    case TensorName::dv:
      return dv;
    case TensorName::dsink:
      return dsink;
    default:
      throw BadInput("tensor", std::string(to_string(name)), "must be out, lse, delta, dq, dk, dv or dsink");
  }
}

ExactAttention exact_attention(const TensorSet& inputs, Direction direction) {
  const AttentionProblem& p = inputs.problem();
  const std::int64_t batch_heads = p.batch * p.heads, rows = batch_heads * p.seqlen_q;
  const std::int64_t key_rows = p.batch * p.heads_kv * p.seqlen_k;
  Workspace work{p,
                 p.scale(),
                 ExactScores(inputs),
                 input_in_fp64(inputs, TensorName::q),
                 input_in_fp64(inputs, TensorName::k),
                 input_in_fp64(inputs, TensorName::v),
                 {},
                 std::vector<double>(rows),
                 std::vector<double>(rows)};
  ExactAttention result;
  result.out.resize(rows * p.value_dim());
  result.lse.resize(rows);
  if (direction == Direction::backward) {
    work.dout = to_fp64(inputs[TensorName::dout]);
    result.delta.resize(rows);
    result.dq.resize(rows * p.head_dim);
    result.dk.resize(key_rows * p.head_dim);
    result.dv.resize(key_rows * p.value_dim());
  }
  parallel_for_each(rows, [&p, pass = RowPass(work, result)](std::int64_t row) mutable {
    pass.run(row / p.seqlen_q, row % p.seqlen_q);
  });
  if (direction == Direction::backward) {
    parallel_for_each(key_rows, [&p, pass = ColumnPass(work, result)](std::int64_t row) mutable {
      pass.run(row / p.seqlen_k, row % p.seqlen_k);
    });
    if (p.score_mods.learned_sink) result.dsink = sink_gradients(work, result);
  }
  return result;
}

}  // namespace tilescope
