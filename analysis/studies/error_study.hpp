// SPDX-License-Identifier: Apache-2.0
// The error experiment of FlashAttention-3 (arXiv:2407.08608, section 4.3).
#pragma once

#include <string_view>
#include <vector>

#include "analysis/studies/study.hpp"

namespace tilescope {

/// Keys of RunEntry::error: the output against exact attention of the inputs as the kernel got them, and of
/// the same inputs before they were rounded to the element type.
inline constexpr std::string_view kErrorOfKernel = "o";
inline constexpr std::string_view kErrorWithInputRounding = "o_of_unrounded_inputs";

/// Forward passes of the kernels in every element type, of fp8 with each way to sum, on inputs
/// N(0, 1) + N(0, 100) * Bernoulli(0.001).
std::vector<StudyTask> error_study_of(const std::vector<const Kernel*>& kernels);
/// Of those of the CPU.
std::vector<StudyTask> error_study(const Machine&);

}  // namespace tilescope
