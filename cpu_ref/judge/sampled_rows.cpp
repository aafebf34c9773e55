// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/sampled_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "cpu_ref/judge/exact_rows.hpp"
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

/// Of a head of K, those that V has.
Tensor value_columns(const Tensor& keys, const AttentionProblem& problem) {
  Tensor values({1, 1, keys.shape().rows, problem.value_dim()}, keys.dtype());
  copy_value_columns(keys, values);
  return values;
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
      const bool sampled = std::ranges::any_of(head.queries, here);
      if (!sampled && direction_ == Direction::forward) continue;
      Tensor outputs = read(out, q_head), log_sums = read(lse, q_head);
      if (sampled) {
        const Tensor queries = read(q, q_head);
        for_each_of(head.queries, [&](const auto& query) {
          if (!here(query)) return;
          const std::int64_t row = query.second;
          const ExactForward exact = exact_forward(made_, queries, keys, values, q_head, row, sums_);
          const std::lock_guard<std::mutex> lock(judging);
          outs.add(outputs, q_head, row, exact.out);
          lses.add(log_sums, q_head, row, exact.lse);
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
      const ExactRow exact = exact_dq(made_, own, keys, values, row);
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
