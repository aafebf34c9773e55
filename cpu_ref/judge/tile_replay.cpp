// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/tile_replay.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/judge/fp8_dot.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"

namespace tilescope {
namespace {

constexpr int kMostKeyParts = 2;

bool is_forward(PassName pass) { return pass == PassName::forward; }
bool is_backward(PassName pass) {
  return pass == PassName::dkdv || pass == PassName::dq || pass == PassName::dkdvdq ||
         pass == PassName::dqdkdv;
}

}  // namespace

TileReplay::Matrix::Matrix(const Tensor& tensor) : values(to_fp64(tensor)), cols(tensor.shape().cols) {
  const auto columns = static_cast<std::size_t>(cols);
  for (std::size_t i = 0; i < values.size(); i += columns) {
    double sum = 0, magnitude = 0;
    for (std::size_t d = 0; d < columns; ++d) {
      sum += values[i + d];
      magnitude += std::abs(values[i + d]);
    }
    row_sums.push_back(sum);
    row_magnitudes.push_back(magnitude);
  }
}

TileReplay::TileReplay(const TileProgram& program, const TensorSet& tensors, const Arithmetic& arithmetic)
    : program_(&program),
      tensors_(&tensors),
      sum_error_(arithmetic.sum_error(program.problem.dtype)),
      largest_kept_prob_(arithmetic.largest_kept_prob(program.problem.dtype)),
      scores_(tensors),
      q_(tensors[TensorName::q]),
      k_(tensors[TensorName::k]),
      v_(tensors[TensorName::v]) {
  const KernelScale kernel_scale(program.problem);
  scale_ = std::abs(program.problem.scale());
  sign_ = kernel_scale.sign;
  probs_factor_ = std::exp2(kernel_scale.softmax.log2_offset);
  if (program.problem.dtype == ElementType::fp8e4m3 && arithmetic.e4m3_prob_log2) {
    probs_factor_ = std::exp2(*arithmetic.e4m3_prob_log2);
  }
  probs_type_ = probs_type(program.problem);
  if (is_forward(program.name)) {
    rows_.resize(kMostKeyParts * q_.row_sums.size());
    begin_rows();
  } else {
    dout_ = Matrix(tensors[TensorName::dout]);
    out_ = Matrix(tensors[TensorName::out]);
    lse_ = to_fp64(tensors[TensorName::lse]);
    if (program.axis == Axis::kv) {
      added_dq_.resize(q_.row_sums.size());
    } else {
      added_dk_.resize(k_.row_sums.size());
      added_dv_.resize(k_.row_sums.size());
    }
  }
}

void TileReplay::begin_rows() {
  const AttentionProblem& p = program_->problem;
  for (std::size_t i = 0; i < rows_.size(); i += kMostKeyParts) {
    const auto row = static_cast<std::int64_t>(i / kMostKeyParts);
    const std::optional<double> sink = scores_.sink(row / p.seqlen_q);
    if (!sink) continue;
    const double unit = scale_ * score_descale(row / p.seqlen_q, row % p.seqlen_q);
    rows_[i].max = {*sink / unit, kRoundingSlack * std::abs(*sink) / unit};
    rows_[i].sum.value = 1;
    rows_[i].seen = true;
  }
}

double TileReplay::score_descale(std::int64_t batch_head, std::int64_t query) const {
  const AttentionProblem& p = program_->problem;
  const std::int64_t batch = batch_head / p.heads, head = batch_head % p.heads;
  const double of_keys =
      p.descaled_by_key_blocks() ? 1.0 : tensors_->descale(TensorName::k, batch, head / p.group_size(), 0);
  return of_keys * tensors_->descale(TensorName::q, batch, head, query);
}

TileReplay::Modified TileReplay::modified(const SlackProduct& score, double scale, std::int64_t query_row,
                                          std::int64_t key) const {
  const AttentionProblem& p = program_->problem;
  if (!change_scores(p.score_mods)) return {score};
  const auto at = [&](double value) {
    return scores_(query_row / p.seqlen_q, query_row % p.seqlen_q, key, scale * value);
  };
  const ExactScore here = at(score.value), below = at(score.value - score.slack),
                   above = at(score.value + score.slack);
  const double rounding = kRoundingSlack * (std::abs(score.value) + here.added / scale);
  const auto apart = [](double x, double a, double b) { return std::max(std::abs(a - x), std::abs(b - x)); };
  return {{here.value / scale, apart(here.value, below.value, above.value) / scale + rounding},
          {here.derivative,
           apart(here.derivative, below.derivative, above.derivative) + kSumSlack * here.derivative}};
}

std::span<const ExactSum> TileReplay::added_rows(TensorName name) const {
  if (name == TensorName::dq_accum) return added_dq_;
  if (name == TensorName::dk_accum) return added_dk_;
  if (name == TensorName::dv_accum) return added_dv_;
  return {};
}

bool TileReplay::can_replay(const TileProgram& program) {
  if (program.stores_partials() || program.pack_gqa) return false;  // it keeps one state a query and head
  return is_forward(program.name) || is_backward(program.name);
}

SlackProduct TileReplay::dot(const Matrix& a, std::int64_t a_row, const Matrix& b, std::int64_t b_row) const {
  const std::int64_t cols = a.cols;
  SlackProduct product = slack_dot(&a.values[a_row * cols], &b.values[b_row * cols], cols);
  if (program_->fp8_sums != Fp8Sums::fp32) {
    product.value = fp8_dot(program_->problem.dtype, &a.values[a_row * cols], &b.values[b_row * cols], cols);
  }
  return product;
}

std::vector<int> TileReplay::visible_keys(const TileState& at, int i) const {
  const AttentionProblem& p = program_->problem;
  const std::int64_t first_key = std::int64_t{at.n_block} * program_->tile.block_n;
  const std::int64_t query = std::int64_t{at.m_block} * program_->tile.block_m + i;
  const std::int64_t batch_head = std::int64_t{at.batch} * p.heads + at.head;
  std::vector<int> keys;
  for (int j = 0; j < program_->tile.block_n && first_key + j < p.seqlen_k; ++j) {
    if (mask_allows(p, batch_head, query, first_key + j)) keys.push_back(j);
  }
  return keys;
}

ExactTileState TileReplay::step(const TileState& visited) {
  const AttentionProblem& p = program_->problem;
  const std::int64_t batch_head = std::int64_t{visited.batch} * p.heads + visited.head;
  const std::int64_t head_kv = visited.head / p.group_size();
  const std::int64_t first_query = std::int64_t{visited.m_block} * program_->tile.block_m;
  const std::int64_t first_key_row = (std::int64_t{visited.batch} * p.heads_kv + head_kv) * p.seqlen_k +
                                     std::int64_t{visited.n_block} * program_->tile.block_n;
  const bool q_axis = program_->axis == Axis::q;
  ExactSum& accum = accums_[{visited.batch, q_axis ? visited.head : static_cast<int>(head_kv),
                             q_axis ? visited.m_block : visited.n_block}];
  ExactTileState state;
  const int parts = std::max(1, static_cast<int>(visited.maxima.size()) / program_->tile.block_m);
  int rows_without_keys = 0;
  for (int i = 0; i < program_->tile.block_m && first_query + i < p.seqlen_q; ++i) {
    const std::int64_t query_row = batch_head * p.seqlen_q + first_query + i;
    if (is_forward(program_->name)) {
      if (visible_keys(visited, i).empty()) ++rows_without_keys;
      for (int part = 0; part < parts; ++part) {
        forward_row(query_row, first_key_row, visited, i, part, parts, state);
      }
    } else {
      backward_row(query_row, first_key_row, visited, i, state, accum);
    }
  }
  if (!is_forward(program_->name)) state.accum = accum;
  state.left_out = {0.5 * rows_without_keys, 0.5 * rows_without_keys};
  return state;
}

ExactSum TileReplay::exponential(const SlackProduct& score, const SlackProduct& reference,
                                 double scale) const {
  const double relative = scale * (score.slack + reference.slack) +
                          kRoundingSlack * scale * (std::abs(score.value) + std::abs(reference.value)) +
                          kSumSlack;
  const double value = std::exp(scale * (score.value - reference.value));
  return {value, value * relative + kSmallestExponential};
}

void TileReplay::raise_maximum(Row& row, const SlackProduct& tile_max, std::optional<float> told,
                               double scale) const {
  const SlackProduct old_max = row.max;
  const bool kept = row.seen && told && *told == row.told_max;
  // Twice the bound is beyond what roundings explain.
  const bool may_keep = scale * (tile_max.value - old_max.value) <= std::log(2 * largest_kept_prob_);
  if (!row.seen || (tile_max.value > old_max.value && !(kept && may_keep))) row.max = tile_max;
  const ExactSum rescale = row.seen ? exponential(old_max, row.max, scale) : ExactSum{};
  for (ExactSum* sum : {&row.sum, &row.accum}) {
    sum->tolerance = sum->tolerance * rescale.value + std::abs(sum->value) * rescale.tolerance;
    sum->value *= rescale.value;
  }
  row.seen = true;
  if (told) row.told_max = *told;
}

void TileReplay::forward_row(std::int64_t query_row, std::int64_t first_key_row, const TileState& at, int i,
                             int part, int parts, ExactTileState& state) {
  const AttentionProblem& p = program_->problem;
  std::vector<int> keys = visible_keys(at, i);
  const int part_keys = program_->tile.block_n / parts;
  std::erase_if(keys, [&](int key) { return key / part_keys != part; });
  Row& row = rows_[static_cast<std::size_t>(query_row * kMostKeyParts + part)];
  std::optional<float> told;
  if (!at.maxima.empty()) told = at.maxima[static_cast<std::size_t>(part * program_->tile.block_m + i)];
  // Scores are logged as they are stored; a maximum is of scores times the descale of their block of keys.
  const std::int64_t head_kv = at.head / p.group_size(),
                     first_key = std::int64_t{at.n_block} * program_->tile.block_n;
  const bool by_block = p.descaled_by_key_blocks();
  const double k_descale = tensors_->descale(TensorName::k, at.batch, head_kv, first_key);
  const double scale = scale_ * score_descale(query_row / p.seqlen_q, query_row % p.seqlen_q);
  std::vector<SlackProduct> scores;
  SlackProduct tile_max{0, 0};
  for (int j : keys) {
    SlackProduct score = dot(q_, query_row, k_, first_key_row + j);
    score.value *= sign_;
    state.scores.add(score.value, score.slack);
    if (by_block) score = {score.value * k_descale, score.slack * k_descale};
    score = modified(score, scale, query_row, first_key + j).score;
    if (scores.empty() || score.value > tile_max.value) tile_max = score;
    scores.push_back(score);
  }
  if (!keys.empty()) raise_maximum(row, tile_max, told, scale);
  if (!row.seen) return;
  if (by_block) {
    const double unit = tensors_->descale(TensorName::v, at.batch, head_kv, first_key);
    row.accum.value *= row.unit / unit;
    row.accum.tolerance *= row.unit / unit;
    row.unit = unit;
  }
  // P is relative to the running maximum (FlashAttention-2) or to that of the tile (FlashAttention-1).
  const bool own_maximum = program_->axis == Axis::kv;
  const ExactSum weight = own_maximum ? exponential(tile_max, row.max, scale) : ExactSum{1, 0};
  for (std::size_t t = 0; t < keys.size(); ++t) {
    const ExactSum prob = exponential(scores[t], own_maximum ? tile_max : row.max, scale);
    row.sum.add(prob.value * weight.value, prob.tolerance * weight.value + prob.value * weight.tolerance);
    const std::int64_t key = std::int64_t{at.n_block} * program_->tile.block_n + keys[t];
    const double kept = dropout_factor(p, query_row / p.seqlen_q, query_row % p.seqlen_q, key);
    const ExactSum entering =
        rounded(kept * probs_factor_ * prob.value, kept * probs_factor_ * prob.tolerance);
    state.probs.add(entering.value, entering.tolerance);
    const auto key_row = static_cast<std::size_t>(first_key_row + keys[t]);
    row.accum.add(entering.value * weight.value * v_.row_sums[key_row],
                  ((entering.tolerance + (kSumSlack + sum_error_) * entering.value) * weight.value +
                   entering.value * weight.tolerance) *
                      v_.row_magnitudes[key_row]);
  }
  state.row_max.add(row.max.value, row.max.slack);
  // FlashAttention-1 divides row_sum and the accumulator by what the other keeps to the end.
  const double sum_factor = own_maximum ? 1.0 : probs_factor_;
  const double accum_factor = own_maximum ? 1.0 / (probs_factor_ * row.sum.value) : 1.0;
  const double accum_relative = own_maximum ? row.sum.tolerance / row.sum.value : 0.0;
  state.row_sum.add(sum_factor * row.sum.value, sum_factor * row.sum.tolerance);
  state.accum.add(accum_factor * row.accum.value,
                  accum_factor * (row.accum.tolerance + accum_relative * std::abs(row.accum.value)));
}

void TileReplay::backward_row(std::int64_t query_row, std::int64_t first_key_row, const TileState& at, int i,
                              ExactTileState& state, ExactSum& accum) {
  const AttentionProblem& p = program_->problem;
  const double lse = lse_[static_cast<std::size_t>(query_row)];
  const SlackProduct delta = dot(dout_, query_row, out_, query_row);
  const auto query = static_cast<std::size_t>(query_row);
  for (int j : visible_keys(at, i)) {
    const std::int64_t key_row = first_key_row + j;
    const SlackProduct score = dot(q_, query_row, k_, key_row);
    state.scores.add(sign_ * score.value, score.slack);
    const std::int64_t key = std::int64_t{at.n_block} * program_->tile.block_n + j;
    const auto [taken, derivative] = modified({sign_ * score.value, score.slack}, scale_, query_row, key);
    const double exponent = scale_ * taken.value - lse;
    const double relative =
        scale_ * taken.slack + kRoundingSlack * (scale_ * std::abs(taken.value) + std::abs(lse)) + kSumSlack;
    const double prob = std::isfinite(lse) ? std::exp(exponent) : 0.0;
    const double kept = dropout_factor(p, query_row / p.seqlen_q, query_row % p.seqlen_q, key);
    const double prob_slack = prob * relative + kSmallestExponential;
    const ExactSum entering = rounded(kept * prob, kept * prob_slack);
    state.probs.add(entering.value, entering.tolerance);

    const SlackProduct dprob = dot(dout_, query_row, v_, key_row);
    state.dprobs.add(kept * dprob.value, kept * dprob.slack);
    const double difference = kept * dprob.value - delta.value;
    const double slack = prob_slack * std::abs(difference) + prob * (kept * dprob.slack + delta.slack);
    const ExactSum dscore =
        rounded(prob * difference * derivative.value,
                slack * derivative.value + std::abs(prob * difference) * derivative.tolerance);
    state.dscores.add(dscore.value, dscore.tolerance);

    const auto add_product = [](ExactSum& sum, const ExactSum& factor, const Matrix& matrix,
                                std::size_t row) {
      sum.add(factor.value * matrix.row_sums[row],
              (factor.tolerance + kSumSlack * std::abs(factor.value)) * matrix.row_magnitudes[row]);
    };
    const auto key_index = static_cast<std::size_t>(key_row);
    if (program_->axis == Axis::q) {
      add_product(accum, dscore, k_, key_index);
      add_product(added_dk_[key_index], dscore, q_, query);
      add_product(added_dv_[key_index], entering, dout_, query);
    } else {
      add_product(accum, dscore, q_, query);
      add_product(accum, entering, dout_, query);
      add_product(added_dq_[query], dscore, k_, key_index);
    }
  }
}

}  // namespace tilescope
