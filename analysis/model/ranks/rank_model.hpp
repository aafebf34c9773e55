// SPDX-License-Identifier: Apache-2.0
// Equal ranks of a machine: their rates, and the kernel that they launch.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "distributed/timeline/timeline.hpp"

namespace tilescope {

/// In place of what the machine's file says.
struct GivenRates {
  std::optional<double> link_bytes_per_second;  // one direction
  std::optional<double> flops_per_second;       // of one GPU with the whole problem
};

struct RankModel {
  std::string machine;  // its name
  RankRates rates;
  std::string line;                // each rate and its kind, for people
  const Kernel* kernel = nullptr;  // none: no candidate computes the problem
  Machine on;

  /// As ranks launch the kernel; nothing without one.
  std::optional<RankKernel> launched(const AttentionProblem& problem, Direction direction) const;
};

/// @param candidates  the first that computes the problem on the machine is what ranks launch
/// @throws BadInput if nothing says how fast the link is, or a rate is not above 0
RankModel rank_model(const Machine& machine, const AttentionProblem& problem,
                     const std::vector<Direction>& directions, const GivenRates& given,
                     std::span<const Kernel* const> candidates);

}  // namespace tilescope
