// SPDX-License-Identifier: Apache-2.0
// `tilescope verify --repeat`: the same problem again and again. Passes without atomic adds must give the
// same bits every time; how far the others differ is told.
#pragma once

#include "analysis/cli/verify/verify_judge.hpp"

namespace tilescope::cli {

/// Runs every kernel of the job `runs` times. A run fails if the first result is wrong, or a later one
/// differs in a tensor that has an order of sums.
VerifyOutcome judge_repeats(const VerifyJob& job, int runs);

}  // namespace tilescope::cli
