// SPDX-License-Identifier: Apache-2.0
// `simulate` and `verify` with --gpus.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "distributed/execution/run_on_ranks.hpp"

namespace tilescope::cli {

/// Link bytes, memory, balance and time of a schedule on a machine. @return an ExitCode
int simulate_distributed(const CommandContext& context, const AttentionProblem& problem,
                         const std::vector<Direction>& directions, const DistributedOptions& options,
                         const std::string& machine, const std::optional<std::string>& link_rate);

/// Ranks that are threads of this CPU, judged; and what they exchanged, beside the closed form.
int verify_distributed(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       InputKind inputs, const DistributedOptions& options, const RankOptions& ranks);

}  // namespace tilescope::cli
