// SPDX-License-Identifier: Apache-2.0
// `tilescope verify --rows`: sampled rows of a kernel's results, judged at any length.
#pragma once

#include "analysis/cli/verify/verify_judge.hpp"

namespace tilescope::cli {

/// Runs the passes of `direction` (backward: those of forward before them, in the kernel's own tiles) once on
/// normal random inputs, on the device for a GPU's kernel, and judges `rows` rows of each output.
/// @throws MachineLacks where the memory is missing; what running the kernel throws
Verdict judge_sampled_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                           const ProgramOptions& options, std::int64_t rows);

/// The same in words and as an entry of the record. Precondition: the kernel does not refuse it.
VerifyOutcome judge_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                         const ProgramOptions& options, std::int64_t rows);

}  // namespace tilescope::cli
