// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's error experiment (arXiv:2407.08608, section 4.3).
#include <memory>
#include <optional>

#include "analysis/model/counts/what_ran.hpp"
#include "analysis/studies/study.hpp"
#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

/// The paper does not print its shape. This one takes seconds in fp64.
constexpr AttentionProblem kErrorProblem{
    .heads = 4, .heads_kv = 4, .seqlen_q = 2048, .seqlen_k = 2048, .head_dim = 128};

TensorSet outlier_inputs(ElementType dtype) {
  AttentionProblem problem = kErrorProblem;
  problem.dtype = dtype;
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::forward, InputKind::outlier);
  return inputs;
}

TensorErrorRecord error_against(const Tensor& actual, std::span<const double> expected) {
  const ErrorReport report = compare(actual, expected);
  TensorErrorRecord error;
  error.max_abs = report.max_abs;
  error.rmse = report.rmse;
  error.max_ulp = static_cast<double>(report.max_ulp);
  error.non_finite = report.non_finite;
  return error;
}

std::vector<RunEntry> errors_in(ElementType dtype, const std::vector<const Kernel*>& kernels,
                                const ExactAttention& unrounded) {
  TensorSet tensors = outlier_inputs(dtype);
  const ExactAttention exact = exact_attention(tensors, Direction::forward);
  std::vector<RunEntry> runs;
  const auto add = [&](const Kernel& kernel, const ProgramOptions& options) {
    kernel.run(options, Direction::forward, tensors, nullptr);
    RunEntry run = entry_of(kernel, tensors.problem());
    run.inputs = InputKind::outlier;
    if (options.fp8_sums != Fp8Sums::fp32) {
      PassRecord& pass = run.passes.emplace_back();
      pass.name = to_string(PassName::forward);
      pass.tile = options[PassName::forward].tile;
      pass.choices.fp8_sums = to_string(options.fp8_sums);
    }
    const Tensor& out = tensors[TensorName::out];
    run.error.emplace(kErrorOfKernel, error_against(out, exact.out));
    run.error.emplace(kErrorWithInputRounding, error_against(out, unrounded.out));
    runs.push_back(std::move(run));
  };
  for (const Kernel* kernel : kernels) {
    ProgramOptions options = kernel->default_options(tensors.problem());
    if (kernel->refusal(tensors.problem(), Direction::forward, options)) continue;
    if (!is_fp8(dtype)) add(*kernel, options);
    for (const Fp8Sums sums : kernel->fp8_sums) {
      options.fp8_sums = sums;
      if (is_fp8(dtype)) add(*kernel, options);
    }
  }
  return runs;
}

}  // namespace

/// Exact attention on the CPU, and the kernels.
constexpr double kSecondsAType = 4;

std::vector<StudyTask> error_study_of(const std::vector<const Kernel*>& kernels) {
  const auto unrounded = std::make_shared<std::optional<ExactAttention>>();  // shared by the tasks
  std::vector<StudyTask> tasks;
  for (const ElementType dtype : kElementTypes) {
    tasks.push_back({std::string(to_string(dtype)),
                     [dtype, unrounded, kernels] {
                       if (!*unrounded) {
                         *unrounded = exact_attention(outlier_inputs(ElementType::fp32), Direction::forward);
                       }
                       return errors_in(dtype, kernels, **unrounded);
                     },
                     kSecondsAType});
  }
  return tasks;
}

std::vector<StudyTask> error_study(const Machine&) {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  return error_study_of(kernels);
}

}  // namespace tilescope
