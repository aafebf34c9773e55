// SPDX-License-Identifier: Apache-2.0
// `tilescope verify --gradients`: a kernel's gradients against central differences of its own forward pass.
#pragma once

#include "analysis/cli/verify/verify_judge.hpp"

namespace tilescope::cli {

/// The problems that are checked where none is named.
std::vector<AttentionProblem> gradient_problems();

/// In words and as an entry of the record. Precondition: the kernel refuses neither direction.
VerifyOutcome judge_gradients(const Kernel& kernel, const AttentionProblem& problem,
                              const ProgramOptions& options);

}  // namespace tilescope::cli
