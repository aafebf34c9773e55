// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/sampled_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/judge/fp8_dot.hpp"
#include "cpu_ref/launch/parallel_for_each.hpp"
#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/numeric/philox.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

using enum TensorName;

constexpr std::int64_t kMostHeads = 4;
constexpr std::uint32_t kSampleStream = 7;  // of counters, beside those of inputs and dropout
constexpr double kShortSum = 4096;

/// `count` rows of `length`: the last, the first, then others by chance; all where there are no more.
std::vector<std::int64_t> pick_rows(std::uint64_t seed, std::uint32_t stream, std::int64_t length,
                                    std::int64_t count) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < std::min(count, length); ++i) {
    const Philox4 bits = philox4x32(seed, {{static_cast<std::uint32_t>(i), stream, 0u, kSampleStream}});
    const std::uint64_t any =
        (std::uint64_t{bits.x[0]} << 32 | bits.x[1]) % static_cast<std::uint64_t>(length);
    rows.push_back(count >= length ? i : i == 0 ? length - 1 : i == 1 ? 0 : static_cast<std::int64_t>(any));
  }
  return rows;
}

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

/// A row as it should be, with the scale of its terms.
struct ExactRow {
  std::vector<double> values;
  TermScale scale;
};

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
           std::int64_t query, Fp8Sums sums = Fp8Sums::fp32)
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

/// A query head as its keys' gradients need it.
struct QueryHead {
  std::int64_t batch_head = 0;
  Tensor q, dout, lse;
  std::vector<QueryTerms> queries;
};

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

struct KeyGradients {
  ExactRow dk, dv;
};

/// One key against all queries of the heads that share it.
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

/// Judges rows of one output after another.
class OutputJudge {
 public:
  OutputJudge(const AttentionProblem& problem, Algorithm algorithm, TensorName name)
      : problem_(problem),
        algorithm_(algorithm),
        extent_(tensor_extent(problem, name)),
        verdict_{.tensor = name, .error = {}} {
    verdict_.error.worst_index = -1;
  }

  /// @param head  (1, 1, rows, cols) of the tensor's head `batch_head`
  void add(const Tensor& head, std::int64_t batch_head, std::int64_t row, const ExactRow& exact) {
    double largest = 0;
    for (double value : exact.values) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    const double bound = row_bound(exact.scale, largest);
    Tensor actual({1, 1, 1, extent_.cols}, extent_.dtype);
    std::memcpy(actual.data(), head.row(0, 0, row), static_cast<std::size_t>(actual.bytes()));
    const ErrorReport error = compare(actual, exact.values);
    ErrorReport& all = verdict_.error;
    const double share = error.non_finite > 0 ? std::numeric_limits<double>::infinity()
                         : error.max_abs == 0 ? 0.0
                                              : error.max_abs / bound;
    if (all.worst_index < 0 || share > verdict_.share || std::isnan(share)) {
      verdict_.share = share;
      all.worst_index =
          (batch_head * extent_.rows + row) * extent_.cols + std::max<std::int64_t>(0, error.worst_index);
      all.worst_actual = error.worst_actual;
      all.worst_expected = error.worst_expected;
    }
    squares_ += error.rmse * error.rmse * static_cast<double>(error.elements - error.non_finite);
    all.elements += error.elements;
    all.non_finite += error.non_finite;
    all.max_abs = std::max(all.max_abs, error.max_abs);
    all.max_ulp = std::max(all.max_ulp, error.max_ulp);
    verdict_.bound = std::max(verdict_.bound, bound);
  }

  TensorVerdict verdict() {
    const std::int64_t finite = verdict_.error.elements - verdict_.error.non_finite;
    if (finite > 0) verdict_.error.rmse = std::sqrt(squares_ / static_cast<double>(finite));
    verdict_.passed = verdict_.error.elements > 0 && verdict_.error.non_finite == 0 && verdict_.share <= 1;
    return verdict_;
  }

 private:
  double row_bound(const TermScale& terms, double largest) const {
    const double exponent = terms.score + (verdict_.tensor == out ? 0.0 : terms.lse / 2);
    const RoundingCost cost = rounding_cost(terms, terms.score, exponent, verdict_.tensor);
    const double length = static_cast<double>(std::max(problem_.seqlen_q, problem_.seqlen_k));
    // Exponentials vanish below fp32's normal numbers, P and dS below those of the element type.
    const double least = std::max(0x1p-126, one_ulp(problem_.dtype, 0));
    // Standard attention stores P, and makes dS from what it stored.
    const double vanished = terms.factors + (algorithm_ == Algorithm::standard ? terms.probs_factors : 0.0);
    const double sums =
        2 * least * vanished + 3 * std::max(1.0, std::sqrt(length / kShortSum)) * 0x1p-24 * cost.fp32;
    const double unit = MirrorBound{.dtype = extent_.dtype}.at(largest);
    if (problem_.dtype == ElementType::fp32) return sums + unit;
    const double eps = epsilon(problem_.dtype);
    if (algorithm_ == Algorithm::standard) return sums + eps * (cost.element + 2 * cost.by_out) + unit;
    if (verdict_.tensor == lse) return sums + unit;
    return sums + 2 * eps * (terms.root + cost.by_out) + unit;
  }

  const AttentionProblem& problem_;
  Algorithm algorithm_;
  TensorExtent extent_;
  TensorVerdict verdict_;
  double squares_ = 0;
};

/// judge(row) for each sampled row, on all threads.
template <typename Row, typename Judge>
void for_each_of(const std::vector<Row>& rows, const Judge& judge) {
  parallel_for_each(std::ssize(rows), [&](std::int64_t i) { judge(rows[static_cast<std::size_t>(i)]); });
}

}  // namespace

std::vector<SampledHead> sample_rows(const AttentionProblem& problem, std::int64_t rows) {
  const std::int64_t all_heads = problem.batch * problem.heads_kv, group = problem.group_size();
  const std::int64_t heads = std::min({all_heads, kMostHeads, rows});
  std::vector<SampledHead> sampled;
  for (std::int64_t h = 0; h < heads; ++h) {
    SampledHead head{
        .batch_head_kv = heads == 1 ? 0 : h * (all_heads - 1) / (heads - 1), .queries = {}, .keys = {}};
    const std::int64_t share = (rows + heads - 1 - h) / heads;
    const auto stream = static_cast<std::uint32_t>(head.batch_head_kv);
    head.keys = pick_rows(problem.seed, 2 * stream, problem.seqlen_k, share);
    const std::int64_t first_head = head.batch_head_kv * group;  // of the group, which lies side by side
    for (std::int64_t row : pick_rows(problem.seed, 2 * stream + 1, group * problem.seqlen_q, share)) {
      head.queries.emplace_back(first_head + row / problem.seqlen_q, row % problem.seqlen_q);
    }
    sampled.push_back(std::move(head));
  }
  return sampled;
}

namespace {

/// Of a head of K, those that V has.
Tensor value_columns(const Tensor& keys, const AttentionProblem& problem) {
  Tensor values({1, 1, keys.shape().rows, problem.value_dim()}, keys.dtype());
  copy_value_columns(keys, values);
  return values;
}

}  // namespace

RowJudge::RowJudge(const AttentionProblem& problem, Algorithm algorithm, Direction direction,
                   std::int64_t rows, Fp8Sums sums)
    : problem_(problem),
      algorithm_(algorithm),
      direction_(direction),
      sums_(is_fp8(problem.dtype) ? sums : Fp8Sums::fp32),
      heads_(sample_rows(problem, rows)),
      made_(problem) {
  for (const TensorName name : {q, k, v}) made_.descales(name) = make_descales(problem, name);
  fill_score_operands(made_);
}

void RowJudge::forward(const HeadReader& read) {
  OutputJudge outs(problem_, algorithm_, out), lses(problem_, algorithm_, lse);
  std::mutex judging;
  for (const SampledHead& head : heads_) {
    const Tensor keys = read(k, head.batch_head_kv);
    const Tensor values = problem_.shared_kv ? value_columns(keys, problem_) : read(v, head.batch_head_kv);
    const std::int64_t group = problem_.group_size();
    for (std::int64_t q_head = head.batch_head_kv * group; q_head < (head.batch_head_kv + 1) * group;
         ++q_head) {
      const auto here = [q_head](const auto& query) { return query.first == q_head; };
      const bool sampled = std::any_of(head.queries.begin(), head.queries.end(), here);
      if (!sampled && direction_ == Direction::forward) continue;
      Tensor outputs = read(out, q_head), log_sums = read(lse, q_head);
      if (sampled) {
        const Tensor queries = read(q, q_head);
        for_each_of(head.queries, [&](const auto& query) {
          if (!here(query)) return;
          const std::int64_t row = query.second;
          QueryRow exact(made_, queries, keys, values, q_head, row, sums_);
          const ExactRow out_row = exact.out(), lse_row = exact.lse();
          const std::lock_guard<std::mutex> lock(judging);
          outs.add(outputs, q_head, row, out_row);
          lses.add(log_sums, q_head, row, lse_row);
        });
      }
      if (direction_ == Direction::backward) {
        out_and_lse_.insert_or_assign(q_head, std::pair(std::move(outputs), std::move(log_sums)));
      }
    }
  }
  verdict_.tensors.push_back(outs.verdict());
  verdict_.tensors.push_back(lses.verdict());
}

void RowJudge::backward(const HeadReader& read) {
  OutputJudge dqs(problem_, algorithm_, dq), dks(problem_, algorithm_, dk), dvs(problem_, algorithm_, dv);
  std::mutex judging;
  for (const SampledHead& head : heads_) {
    const std::int64_t group = problem_.group_size(), head_kv = head.batch_head_kv;
    const Tensor keys = read(k, head_kv), values = read(v, head_kv);
    std::vector<QueryHead> query_heads;
    for (std::int64_t q_head = head_kv * group; q_head < (head_kv + 1) * group; ++q_head) {
      auto& [out_head, lse_head] = out_and_lse_.at(q_head);
      query_heads.push_back(
          query_head(q_head, read(q, q_head), read(dout, q_head), out_head, lse_head.as(ElementType::fp32)));
    }
    std::map<std::int64_t, Tensor> dq_heads;
    for (const auto& [q_head, row] : head.queries) {
      if (!dq_heads.contains(q_head)) dq_heads.emplace(q_head, read(dq, q_head));
    }
    for_each_of(head.queries, [&](const auto& query) {
      const auto [q_head, row] = query;
      const QueryHead& own = query_heads[static_cast<std::size_t>(q_head - head_kv * group)];
      const ExactRow exact = QueryRow(made_, own.q, keys, values, q_head, row).dq(own.dout);
      const std::lock_guard<std::mutex> lock(judging);
      dqs.add(dq_heads.at(q_head), q_head, row, exact);
    });
    const Tensor dk_head = read(dk, head_kv), dv_head = read(dv, head_kv);
    for_each_of(head.keys, [&](std::int64_t key) {
      const KeyGradients exact = key_gradients(made_, query_heads, keys, values, key);
      const std::lock_guard<std::mutex> lock(judging);
      dks.add(dk_head, head_kv, key, exact.dk);
      dvs.add(dv_head, head_kv, key, exact.dv);
    });
  }
  for (OutputJudge* output : {&dqs, &dks, &dvs}) verdict_.tensors.push_back(output->verdict());
}

Tensor copy_head(const Tensor& tensor, std::int64_t batch_head) {
  const Shape& shape = tensor.shape();
  Tensor head({1, 1, shape.rows, shape.cols}, tensor.dtype());
  std::memcpy(head.data(), tensor.row(batch_head / shape.heads, batch_head % shape.heads, 0),
              static_cast<std::size_t>(head.bytes()));
  return head;
}

}  // namespace tilescope
