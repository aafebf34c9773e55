// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/equivalence.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu_ref/judge/error_scale.hpp"
#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

using enum TensorName;
constexpr TensorName kForwardOutputs[] = {out, lse};
constexpr TensorName kBackwardOutputs[] = {dq, dk, dv, dsink};
constexpr TensorName kInputs[] = {q, k, v, dout, alibi_slopes, sink};

/// Calls visit(name) for every output of `direction`, those of the forward pass first.
template <typename Visitor>
void for_each_output(const AttentionProblem& problem, Direction direction, Visitor&& visit) {
  for (TensorName name : kForwardOutputs) visit(name);
  if (direction == Direction::forward) return;
  for (TensorName name : output_tensors(problem, direction)) visit(name);
}

/// FlashAttention-3's floor: 2 max|((ref + 0.3) - 0.3) - ref|, each step rounded to `dtype`.
double rounding_floor(std::span<const double> exact, ElementType dtype) {
  std::vector<float> values(exact.begin(), exact.end());
  const auto count = static_cast<std::int64_t>(values.size());
  round_to(dtype, values.data(), count);
  std::vector<float> shifted = values;
  for (float shift : {0.3f, -0.3f}) {
    for (float& value : shifted) value += shift;
    round_to(dtype, shifted.data(), count);
  }
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) largest = std::max<double>(largest, std::abs(shifted[i] - values[i]));
  }
  return 2 * largest;
}

/// A score is a sum of head_dim products. Where they are added one after the other, as on a GPU's CUDA cores,
/// its error grows with the root of their number: independent roundings of partial sums that grow likewise.
/// Up to 64 of them the factor 3 of least_bound() holds it.
double score_error(std::int64_t head_dim) {
  return std::max(1.0, std::sqrt(static_cast<double>(head_dim) / 64));
}

/// Roundings of every term that a right kernel's fp32 arithmetic may cost.
constexpr double kRoundingsOfTerms = 3;

/// How coarse fp32 exponents are beside the element type, at most 1. The cost of an LSE is that of an
/// exponent.
double exponent_share(const Reference& reference) {
  return std::min(1.0, reference.bound(lse).fp32_cost / epsilon(reference.problem().dtype));
}

/// What a right kernel may be off where the yardstick is exact (one key, or a softmax that is one-hot: its
/// gradients are 0) or lucky (few rows).
double least_bound(const RoundingCost& cost, ElementType dtype) {
  // Errors of `out` are even over +- epsilon: twice the root of their squares is 3.5 standard deviations.
  const double by_out = dtype == ElementType::fp32 ? 0.0 : 2 * epsilon(dtype) * cost.by_out;
  return kRoundingsOfTerms * 0x1p-24 * cost.fp32 + by_out;
}

double largest_finite(std::span<const double> values) {
  double largest = 0;
  for (double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// The most that the yardstick's own error may be, so that a wrong yardstick excuses nothing: one rounding of
/// each term to the element type, or, in fp32, of sums of up to 256 terms. On random problems its error stays
/// below 0.4 and 0.6 of this.
double standard_limit(const RoundingCost& cost, ElementType dtype) {
  return (dtype == ElementType::fp32 ? 4 : 1) * epsilon(dtype) * cost.element;
}

TensorSet random_inputs(const AttentionProblem& problem, InputKind kind, Direction direction) {
  TensorSet inputs(problem);
  fill_random_inputs(inputs, direction, kind);
  return inputs;
}

/// Compares where shape and type are as they should be; else every element counts as missing.
template <typename Expected>
ErrorReport compare_output(const TensorSet& tensors, TensorName name, const Expected& expected) {
  const TensorExtent extent = tensor_extent(tensors.problem(), name);
  const Tensor& tensor = tensors[name];
  const Shape shape{extent.batch, extent.heads, extent.rows, extent.cols};
  if (tensor.shape() == shape && tensor.dtype() == extent.dtype) return compare(tensor, expected);
  ErrorReport missing;
  missing.elements = missing.non_finite = shape.elements();
  missing.first_non_finite = missing.worst_index = 0;
  return missing;
}

/// A mirror's bound is never more than this of the exact one; and where exponents are coarse, no more than
/// two results that the exact bound lets pass can be apart.
constexpr double kMostOfExact = 0.9, kMostOfExactWhereCoarse = 2;

/// How much farther apart two kernels are that round P independently: the square root of 2, and a little for
/// their luck.
constexpr double kIndependentFactor = 1.5;

// On an H200, over the sweep of `verify` (reports/data/verify-h200.json.gz), no GPU kernel came nearer to
// these than 0.92 in fp32, 0.97 in fp16, 0.76 in bf16.
constexpr MirrorRule kMirrorRules[] = {
    {ElementType::fp32, 0.5, "every operation is fp32, so the order of sums is all the error there is"},
    {ElementType::fp16, 0.25,
     "P and dS are rounded alike; a sum that differs in its last fp32 bits flips one rounding in 2^13"},
    {ElementType::bf16, 0.125,
     "P and dS are rounded alike; a sum that differs in its last fp32 bits flips one rounding in 2^16"},
    {ElementType::fp8e4m3, 0.125, "as bf16, which fp8 kernels write"},
    {ElementType::fp8e5m2, 0.125, "as bf16, which fp8 kernels write"},
};

/// The inputs, unless the yardstick will refuse them, which nobody should wait for exact results to hear.
TensorSet taken_by(const Kernel& standard, TensorSet inputs, Direction direction) {
  if (const auto reason = missing_feature(standard.can, inputs.problem(), direction)) {
    throw BadInput("a CPU kernel " + *reason);
  }
  return inputs;
}

constexpr double kLeastExp2 = 0x1p-126;  // a GPU's exp2 gives 0 below the least normal number
constexpr double kDeviations = 4;        // of sums whose terms differ by chance

/// An error of that size of P V, in one row.
double by_value_sums(const TermScale& row, TensorName output, double sum_error) {
  return output == out ? sum_error * row.sum : 0.0;
}

/// The largest difference as a share of its bound; `error` then names that element as the worst.
/// @param largest_bound  takes the largest of the bounds
double largest_share(const Tensor& kernel, const Tensor& mirror, std::span<const MirrorBound> bounds,
                     ErrorReport& error, double& largest_bound) {
  double largest = 0;
  const std::int64_t cols = kernel.shape().elements() / static_cast<std::int64_t>(bounds.size());
  for (std::int64_t i = 0; i < kernel.shape().elements(); ++i) {
    const double value = kernel.get(i), expected = mirror.get(i), difference = std::abs(value - expected);
    if (!std::isfinite(value) || !std::isfinite(expected)) continue;  // counted by compare()
    const double allowed =
        bounds[static_cast<std::size_t>(i / cols)].at(std::max(std::abs(value), std::abs(expected)));
    largest_bound = std::max(largest_bound, allowed);
    if (difference == 0 || difference <= largest * allowed) continue;
    largest = difference / allowed;
    if (error.non_finite > 0) continue;
    error.worst_index = i;
    error.worst_actual = value;
    error.worst_expected = expected;
  }
  return largest;
}

/// The bound of a tensor's root mean square error: the rule stands at judge_mirror().
double mirror_rmse_bound(const Reference& reference, TensorName output, const Arithmetic& arithmetic) {
  const bool conditional = arithmetic.rescaling == Rescaling::conditional;
  const ElementType dtype = reference.problem().dtype;
  const MirrorRule& rule = *std::ranges::find(kMirrorRules, dtype, &MirrorRule::dtype);
  const ErrorBound& exact = reference.bound(output);
  const TensorExtent extent = tensor_extent(reference.problem(), output);
  const double unit = 2 * epsilon(extent.dtype) * exact.largest;
  const double rows = static_cast<double>(extent.batch * extent.heads * extent.rows);
  const double by_rule =
      (conditional && output == out ? kIndependentFactor : rule.rmse_factor) * exact.standard_rmse +
      exact.fp32_cost +
      (exact.standard_max_abs + exponent_share(reference) * (2 * exact.least + unit)) / std::sqrt(rows);
  const double by_sums = reference.by_sums(output, arithmetic.sum_error(dtype));
  const double tipped_share = conditional ? 1 : output == dsink ? 0 : 0.125;  // of the elements of `out`
  return std::max(by_rule, tipped_share * reference.inherited_by_delta(output)) + by_sums;
}

}  // namespace

std::span<const TensorName> output_tensors(const AttentionProblem& problem, Direction direction) {
  if (direction == Direction::forward) return kForwardOutputs;
  return std::span(kBackwardOutputs).first(problem.score_mods.learned_sink ? 4 : 3);
}

const Kernel& standard_kernel() {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.algorithm == Algorithm::standard) return kernel;
  }
  throw std::logic_error("no kernel of the CPU is standard attention, the yardstick");
}

const Kernel* mirror_of(const Kernel& kernel) {
  if (!kernel.on_gpu()) return nullptr;
  for (const Kernel& mirror : cpu_kernels()) {
    if (mirror.algorithm == kernel.algorithm) return &mirror;
  }
  return nullptr;
}

bool Verdict::passed() const {
  return !tensors.empty() && std::ranges::all_of(tensors, &TensorVerdict::passed);
}

Reference::Reference(TensorSet inputs, Direction direction, const Kernel& standard)
    : tensors_(taken_by(standard, std::move(inputs), direction)),
      exact_(exact_attention(tensors_, direction)),
      scale_(error_scale(tensors_, exact_)) {
  const ElementType dtype = problem().dtype;
  run(standard, standard.default_options(problem()), direction);
  for_each_output(problem(), direction, [&](TensorName name) {
    const ErrorReport error = compare_output(tensors_, name, exact_[name]);
    const RoundingCost cost = rounding_cost(largest(scale_.rows(name == lse ? out : name)), scale_.score,
                                            score_error(problem().head_dim) * scale_.score, name);
    const bool gradient = name != out && name != lse;
    bounds_[static_cast<std::size_t>(name)] = {
        .standard_max_abs = std::min(error.max_abs, standard_limit(cost, dtype)),
        .standard_rmse = error.rmse,
        .factor = gradient ? 3.0 : 2.0,
        .atol = rounding_floor(exact_[name], tensor_extent(problem(), name).dtype),
        .least = least_bound(cost, dtype),
        .fp32_cost = 0x1p-24 * cost.fp32,
        .largest = largest_finite(exact_[name])};
  });
}

Reference::Reference(const AttentionProblem& problem, InputKind kind, Direction direction,
                     const Kernel& standard)
    : Reference(random_inputs(problem, kind, direction), direction, standard) {}

const ErrorBound& Reference::bound(TensorName output) const {
  return bounds_[static_cast<std::size_t>(output)];
}

void Reference::run(const Kernel& kernel, const ProgramOptions& options, Direction direction,
                    TileObserver* observer) {
  if (observer != nullptr) observer->passes.clear();
  run(
      [&](Direction step, TensorSet& tensors) {
        TileObserver passes;
        kernel.run(options, step, tensors, observer != nullptr ? &passes : nullptr);
        if (observer == nullptr) return;
        std::move(passes.passes.begin(), passes.passes.end(), std::back_inserter(observer->passes));
      },
      direction);
}

void Reference::run(const std::function<void(Direction, TensorSet&)>& run_direction, Direction direction) {
  take_outputs();
  run_direction(Direction::forward, tensors_);
  if (direction == Direction::backward) run_direction(Direction::backward, tensors_);
}

Verdict Reference::judge(Direction direction) const {
  Verdict verdict;
  for_each_output(problem(), direction, [&](TensorName name) { verdict.tensors.push_back(judge(name)); });
  return verdict;
}

TensorVerdict Reference::judge(TensorName output) const {
  const ErrorReport error = compare_output(tensors_, output, exact_[output]);
  const double limit = bound(output).bound();
  return {.tensor = output,
          .error = error,
          .bound = limit,
          .share = error.max_abs == 0 ? 0.0 : error.max_abs / limit,
          .passed = error.within(limit)};
}

double Reference::coarseness() const {
  return problem().dtype == ElementType::fp32 ? 0 : exponent_share(*this);  // in fp32 P is not rounded
}

std::vector<MirrorBound> Reference::mirror_bounds(TensorName output, const Arithmetic& arithmetic) const {
  const std::vector<TermScale>& rows = scale_.rows(output == lse ? out : output);
  const double score = score_error(problem().head_dim) * scale_.score;
  const bool rounds = problem().dtype != ElementType::fp32 && output != lse;
  const double terms_ulp = rounds ? epsilon(problem().dtype) : 0.0;
  const double least_ulp = rounds ? one_ulp(problem().dtype, 0) : 0.0;  // of P and dS too small for epsilon
  const double stored_ulp = arithmetic.stores_scores ? epsilon(problem().dtype) : 0.0;
  const double sum_error = arithmetic.sum_error(problem().dtype);
  const double most = kMostOfExact + (rounds ? coarseness() : 0.0) * (kMostOfExactWhereCoarse - kMostOfExact);
  std::vector<MirrorBound> bounds;
  for (const TermScale& row : rows) {
    // An LSE is rounded once, and passes that take it from a score inherit that: half of the exponent's two.
    const double exponent = std::min(row.score, score) + (output == out ? 0.0 : row.lse / 2);
    const RoundingCost cost = rounding_cost(row, scale_.score, exponent, output);
    const double sums = 2 * kRoundingsOfTerms * 0x1p-24 * cost.fp32,
                 tipped = terms_ulp * (row.root + 2 * cost.by_out) + least_ulp * row.factors,
                 stored = stored_ulp * (output == lse ? row.stored_lse : row.stored),
                 flushed = kDeviations * kLeastExp2 * (row.factors + row.probs_factors);
    bounds.push_back({sums + tipped + stored + flushed + by_value_sums(row, output, sum_error),
                      most * bound(output).bound(), tensor_extent(problem(), output).dtype});
  }
  return bounds;
}

double Reference::inherited_by_delta(TensorName output) const {
  if (output != dq && output != dk && output != dsink) return 0;
  double squares = 0;
  const std::vector<TermScale>& rows = scale_.rows(output);
  for (const TermScale& row : rows) squares += std::pow(output == dsink ? row.by_out_root : row.by_out, 2);
  return epsilon(problem().dtype) * std::sqrt(squares / static_cast<double>(rows.size()));
}

double Reference::by_sums(TensorName output, double sum_error) const {
  if (sum_error == 0) return 0;
  double squares = 0;
  const std::vector<TermScale>& rows = scale_.rows(out);
  for (const TermScale& row : rows) squares += std::pow(by_value_sums(row, output, sum_error), 2);
  return std::sqrt(squares / static_cast<double>(rows.size()));
}

TensorSet Reference::take_outputs() {
  TensorSet outputs(problem());
  for (int i = 0; i < kNumTensors; ++i) {
    const auto name = static_cast<TensorName>(i);
    if (std::ranges::find(kInputs, name) != std::end(kInputs)) continue;
    outputs[name] = std::exchange(tensors_[name], Tensor());
  }
  return outputs;
}

std::span<const MirrorRule> mirror_rules() { return kMirrorRules; }

double MirrorBound::at(double value) const {
  const double unit = one_ulp(dtype, std::abs(value));
  return std::max(unit, std::min(before_rounding + unit, most));
}

Verdict judge_mirror(const Reference& reference, const TensorSet& kernel, const TensorSet& mirror,
                     Direction direction, const Arithmetic& arithmetic) {
  Verdict verdict;
  for_each_output(reference.problem(), direction, [&](TensorName name) {
    TensorVerdict& tensor = verdict.tensors.emplace_back();
    tensor.tensor = name;
    tensor.error = compare_output(kernel, name, mirror[name]);
    tensor.rmse_bound = mirror_rmse_bound(reference, name, arithmetic);
    if (kernel[name].shape() == mirror[name].shape()) {
      const std::vector<MirrorBound> bounds = reference.mirror_bounds(name, arithmetic);
      tensor.share = largest_share(kernel[name], mirror[name], bounds, tensor.error, tensor.bound);
    }
    tensor.passed =
        tensor.error.non_finite == 0 && tensor.share <= 1 && tensor.error.rmse <= *tensor.rmse_bound;
  });
  return verdict;
}

}  // namespace tilescope
