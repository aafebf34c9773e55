// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's error experiment (arXiv:2407.08608, section 4.3).
#include "analysis/studies/error_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/model/counts/what_ran.hpp"
#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

constexpr TensorName kInputs[] = {TensorName::q, TensorName::k, TensorName::v};

TensorErrorRecord error_against(const Tensor& actual, std::span<const double> expected) {
  const ErrorReport report = compare(actual, expected);
  TensorErrorRecord error;
  error.max_abs = report.max_abs;
  error.rmse = report.rmse;
  error.max_ulp = static_cast<double>(report.max_ulp);
  error.non_finite = report.non_finite;
  return error;
}

/// One of Q and K with its columns mixed by a Hadamard matrix with random signs: their products stay as they
/// were, and an outlier is spread over its row (the paper's incoherent processing, section 3.3).
Tensor spread_outliers(const Tensor& values, std::uint64_t seed) {
  Tensor mixed = values.as(ElementType::fp32);
  const std::int64_t cols = mixed.shape().cols, rows = mixed.shape().elements() / cols;
  const float norm = 1.0f / std::sqrt(static_cast<float>(cols));
#pragma omp parallel for
  for (std::int64_t row = 0; row < rows; ++row) {
    float* x = mixed.floats() + row * cols;
    for (std::int64_t i = 0; i < cols; ++i)
      x[i] *= random_normal(seed, TensorName::dout, i) < 0 ? -norm : norm;
    for (std::int64_t half = 1; half < cols; half *= 2) {
      for (std::int64_t i = 0; i < cols; ++i) {
        if ((i & half) != 0) continue;
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  return mixed;
}

/// The inputs of a draw before they are rounded.
TensorSet drawn_inputs(const AttentionProblem& problem) {
  AttentionProblem unrounded = problem;
  unrounded.dtype = ElementType::fp32;
  unrounded.descales = {};
  TensorSet inputs(unrounded);
  fill_random_inputs(inputs, Direction::forward, InputKind::outlier);
  return inputs;
}

TensorSet stored_inputs(const AttentionProblem& problem, const TensorSet& values, bool incoherent) {
  TensorSet stored(problem);
  for (const TensorName name : kInputs) {
    const bool mixed = incoherent && name != TensorName::v;
    store_input(stored, name,
                mixed ? spread_outliers(values[name], problem.seed) : values[name].as(ElementType::fp32));
  }
  return stored;
}

}  // namespace

Tensor twice_rounded_attention(const TensorSet& inputs) {
  const AttentionProblem& problem = inputs.problem();
  const std::vector<double> q = input_in_fp64(inputs, TensorName::q),
                            k = input_in_fp64(inputs, TensorName::k),
                            v = input_in_fp64(inputs, TensorName::v);
  const std::int64_t n = problem.seqlen_k, d = problem.head_dim, heads = problem.batch * problem.heads;
  std::vector<float> keys(k.begin(), k.end()), values(v.begin(), v.end()), transposed(k.size());
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t col = 0; col < d; ++col)
        transposed[static_cast<std::size_t>((head * d + col) * n + row)] =
            keys[static_cast<std::size_t>((head * n + row) * d + col)];
    }
  }
  Tensor out({problem.batch, problem.heads, problem.seqlen_q, d}, ElementType::fp16);
#pragma omp parallel for
  for (std::int64_t row = 0; row < heads * problem.seqlen_q; ++row) {
    const std::int64_t head = row / problem.seqlen_q;
    std::vector<float> scores(static_cast<std::size_t>(n), 0.0f), sums(static_cast<std::size_t>(d), 0.0f);
    for (std::int64_t col = 0; col < d; ++col) {
      const float query = static_cast<float>(q[static_cast<std::size_t>(row * d + col)]);
      const float* column = transposed.data() + (head * d + col) * n;
      for (std::int64_t j = 0; j < n; ++j) scores[static_cast<std::size_t>(j)] += query * column[j];
    }
    round_to(ElementType::fp16, scores.data(), n);
    for (float& score : scores) score *= static_cast<float>(problem.scale());
    round_to(ElementType::fp16, scores.data(), n);
    const float most = *std::ranges::max_element(scores);
    float sum = 0;
    for (float& score : scores) sum += score = std::exp(score - most);
    for (float& score : scores) score /= sum;
    round_to(ElementType::fp16, scores.data(), n);
    for (std::int64_t j = 0; j < n; ++j) {
      const float* value = values.data() + (head * n + j) * d;
      for (std::int64_t col = 0; col < d; ++col)
        sums[static_cast<std::size_t>(col)] += scores[static_cast<std::size_t>(j)] * value[col];
    }
    narrow(ElementType::fp16, sums.data(),
           out.row(head / problem.heads, head % problem.heads, row % problem.seqlen_q), d);
  }
  return out;
}

namespace {

/// How fp8 inputs come by their descales.
struct Quantization {
  std::string_view name;
  bool by_block = false, incoherent = false;
};
constexpr Quantization kQuantizations[] = {{"a scale a tensor"},
                                           {"block scales", true, false},
                                           {"a scale a tensor, incoherent", false, true},
                                           {"block scales, incoherent", true, true}};

AttentionProblem quantized(AttentionProblem problem, const Quantization& how, TileShape tile) {
  const Descale of_data{Descale::From::data};
  problem.descales = {of_data, of_data, of_data, how.by_block ? tile : TileShape{0, 0}};
  return problem;
}

/// What one draw says of every kernel.
class Draw {
 public:
  explicit Draw(const AttentionProblem& problem)
      : problem_(problem),
        values_(drawn_inputs(problem)),
        exact_(exact_attention(values_, Direction::forward)) {}

  void add_baseline(ElementType type, std::vector<RunEntry>& runs) const {
    AttentionProblem problem = problem_;
    problem.dtype = type;
    if (is_fp8(type)) problem = quantized(problem, kQuantizations[0], {});
    RunEntry run;
    run.problem = problem;
    run.kernel = std::string(kTwiceRounded);
    run.inputs = InputKind::outlier;
    run.error.emplace(
        kErrorWithInputRounding,
        error_against(twice_rounded_attention(stored_inputs(problem, values_, false)), exact_.out));
    runs.push_back(std::move(run));
  }

  void add(const Kernel& kernel, ElementType type, std::vector<RunEntry>& runs) const {
    AttentionProblem problem = problem_;
    problem.dtype = type;
    if (!is_fp8(type)) return add_run(kernel, problem, {}, runs);
    const TileShape tile = kernel.default_options(problem)[PassName::forward].tile;
    for (const Quantization& how : kQuantizations) add_run(kernel, quantized(problem, how, tile), how, runs);
  }

 private:
  void add_run(const Kernel& kernel, const AttentionProblem& problem, const Quantization& how,
               std::vector<RunEntry>& runs) const {
    ProgramOptions options = kernel.default_options(problem);
    for (const Fp8Sums sums : kernel.fp8_sums) {
      // Other sums than the kernel's own tell least where the inputs' rounding is most of the error.
      const bool own = sums == kernel.fp8_sums.front();
      if (!own && !(how.by_block && how.incoherent)) continue;
      options.fp8_sums = sums;
      if (kernel.refusal(problem, Direction::forward, options)) continue;
      TensorSet tensors = stored_inputs(problem, values_, how.incoherent);
      kernel.run(options, Direction::forward, tensors, nullptr);
      RunEntry run = entry_of(kernel, problem);
      if (how.incoherent) run.kernel += std::string(kIncoherent);
      run.inputs = InputKind::outlier;
      if (is_fp8(problem.dtype) && sums != Fp8Sums::fp32) {
        PassRecord& pass = run.passes.emplace_back();
        pass.name = to_string(PassName::forward);
        pass.tile = options[PassName::forward].tile;
        pass.choices.fp8_sums = to_string(sums);
      }
      run.error.emplace(kErrorWithInputRounding, error_against(tensors[TensorName::out], exact_.out));
      runs.push_back(std::move(run));
    }
  }

  AttentionProblem problem_;
  TensorSet values_;
  ExactAttention exact_;
};

}  // namespace

std::vector<RunEntry> errors_of_draw(const AttentionProblem& problem,
                                     const std::vector<const Kernel*>& kernels) {
  const Draw draw(problem);
  std::vector<RunEntry> runs;
  for (const ElementType type : {ElementType::fp16, ElementType::bf16, ElementType::fp8e4m3}) {
    if (type != ElementType::bf16) draw.add_baseline(type, runs);  // which rounds to fp16
    for (const Kernel* kernel : kernels) draw.add(*kernel, type, runs);
  }
  return runs;
}

std::vector<StudyTask> error_study_of(const std::vector<const Kernel*>& kernels) {
  constexpr int kSeeds = 8;
  constexpr double kSecondsADraw = 60;  // exact attention in fp64 is half of it
  std::vector<StudyTask> tasks;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    AttentionProblem problem;
    problem.seqlen_q = problem.seqlen_k = 8448;  // of the paper's Table 2; Table 3 prints no shape
    problem.head_dim = 128;
    problem.seed = static_cast<std::uint64_t>(seed);
    tasks.push_back({fmt::format("seed {}", seed),
                     [problem, kernels] { return errors_of_draw(problem, kernels); }, kSecondsADraw});
  }
  return tasks;
}

std::vector<StudyTask> error_study(const Machine&) {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  return error_study_of(kernels);
}

}  // namespace tilescope
