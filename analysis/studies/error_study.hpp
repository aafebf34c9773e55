// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's error experiment: forward passes on inputs N(0, 1) + N(0, 100) * Bernoulli(0.001), held
// against fp64 attention of the same inputs before they were rounded.
#pragma once

#include <string_view>
#include <vector>

#include "analysis/studies/study.hpp"
#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

/// Key of RunEntry::error.
inline constexpr std::string_view kErrorWithInputRounding = "o_of_unrounded_inputs";
/// The kernel's name in the record of twice_rounded_attention().
inline constexpr std::string_view kTwiceRounded = "standard, rounded twice";
/// Ends the name of a kernel whose Q and K went through a Hadamard matrix first.
inline constexpr std::string_view kIncoherent = " (incoherent)";

/// Attention as a framework computes it step by step: Q K^T rounded to fp16, scaled and rounded again, a
/// softmax in fp32 whose result is rounded, P V summed in fp32. Inputs of any type, times their descales; the
/// result is fp16. Precondition: no mask, no groups, no dropout.
Tensor twice_rounded_attention(const TensorSet& inputs);

/// One draw of the problem's seed: the kernels in fp16 and bf16, and in fp8 with a scale a tensor or a block,
/// each also with Q and K spread by a Hadamard matrix; the baseline in fp16 and fp8. Whatever the kernels,
/// the inputs of a seed are the same. Precondition: head_dim a power of two.
std::vector<RunEntry> errors_of_draw(const AttentionProblem& problem,
                                     const std::vector<const Kernel*>& kernels);

/// Eight draws, on these kernels, of CPU or GPU, or on those of the CPU.
std::vector<StudyTask> error_study_of(const std::vector<const Kernel*>& kernels);
std::vector<StudyTask> error_study(const Machine&);

}  // namespace tilescope
