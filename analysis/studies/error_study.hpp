// SPDX-License-Identifier: Apache-2.0
// The error experiment of FlashAttention-3 (arXiv:2407.08608, section 4.3) on the CPU kernels.
#pragma once

#include <string_view>
#include <vector>

#include "analysis/studies/study.hpp"

namespace tilescope {

/// Keys of RunEntry::error: the output against exact attention of the inputs as the kernel got them, and of
/// the same inputs before they were rounded to the element type.
inline constexpr std::string_view kErrorOfKernel = "o";
inline constexpr std::string_view kErrorWithInputRounding = "o_of_unrounded_inputs";

/// Forward passes of cpu:standard, cpu:flash1 and cpu:flash2 in every element type, on inputs
/// N(0, 1) + N(0, 100) * Bernoulli(0.001).
std::vector<StudyTask> error_study(const Machine&);

}  // namespace tilescope
