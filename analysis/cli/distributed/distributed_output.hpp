// SPDX-License-Identifier: Apache-2.0
// What the commands say of a problem on several GPUs.
#pragma once

#include <string>
#include <vector>

#include "analysis/model/ranks/rank_account.hpp"
#include "analysis/model/ranks/rank_model.hpp"

namespace tilescope::cli {

/// "97.3 %"
std::string percent_text(double share);

/// "zigzag on 4 GPUs" or "ulysses-ring on 8 GPUs, 4 share heads"
std::string schedule_line(const AttentionProblem& problem, const DistributedOptions& options);

/// In place of what the machine's file says, as typed.
struct TypedRates {
  std::optional<std::string> link_rate = std::nullopt;  // bytes a second
  std::optional<std::string> flop_rate = std::nullopt;  // TFLOP/s
  GivenRates given() const;
};
/// Ranks of a machine that launch what DeviceRanks would.
RankModel machine_ranks(const std::string& machine, const AttentionProblem& problem,
                        const std::vector<Direction>& directions, const GivenRates& given = {});

/// One row a rank, and what holds for all.
std::string distributed_table(const ProgramAccount& account);
/// One row a schedule and pass, of the GPU that sends most.
std::vector<std::string> comparison_heads();
std::vector<std::string> comparison_row(const ProgramAccount& account);

}  // namespace tilescope::cli
