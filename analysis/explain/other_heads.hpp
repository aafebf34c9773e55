// SPDX-License-Identifier: Apache-2.0
// Whether a kernel's bytes speak for another problem than the one that somebody says it computed.
#pragma once

#include <optional>
#include <span>

#include "analysis/explain/program_fit.hpp"

namespace tilescope {

/// The number of query heads that explains a kernel better than the given one, if some does.
/// Every byte of a problem is proportional to its heads over the batch, so that each candidate says with how
/// many it would have moved what was measured. Only tiled programs are asked: a copy fits any number. Numbers
/// from an eighth to eight times the given one, of the same grouping.
/// @param candidates of `problem`; none of a problem with key lengths is scaled, whose entries differ
/// @param given      what fit_kernel says of them
std::optional<OtherHeads> heads_that_fit_better(const KernelGroup& kernel, const AttentionProblem& problem,
                                                std::span<const CandidateProgram> candidates,
                                                const KernelFit& given);

}  // namespace tilescope
