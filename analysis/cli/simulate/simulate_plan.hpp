// SPDX-License-Identifier: Apache-2.0
// The runs of a simulation, chosen before anything is replayed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/simulate/simulate_arguments.hpp"

namespace tilescope::cli {

/// The tile of FlashAttention's Algorithm 1, line 1, for the on-chip memory of --sram-bytes.
struct PaperTile {
  TileShape tile;
  std::string remark;
};
std::optional<PaperTile> paper_tile(const SimulateArguments& arguments, const AttentionProblem& problem,
                                    const Machine& machine);

/// The kernels named, or a default one.
struct ChosenKernels {
  std::vector<const Kernel*> kernels;
  std::string line;  // which says what was taken by default, and why; empty where kernels were named
};
ChosenKernels chosen_kernels(const SimulateArguments& arguments, const AttentionProblem& problem,
                             const std::vector<Machine>& machines);

struct SimulatePlan {
  std::vector<SimulateJob> jobs;
  std::string default_kernels;  // lines: one, but where a sweep needs several
};
/// @param machines  must outlive the jobs
SimulatePlan plan_jobs(const SimulateArguments& arguments, const std::vector<Direction>& directions,
                       const std::optional<PaperTile>& paper, const std::vector<Machine>& machines);

/// Those of this process, where --shard says that there are others.
std::vector<SimulateJob> own_jobs(std::vector<SimulateJob> jobs, const Shard& shard, bool curve);

/// Says what takes a minute or more before it begins.
std::string announcement(const std::vector<SimulateJob>& jobs, const SimulationOptions& how);

/// --dry-run: each run and how long it may take.
std::string plan_text(const std::vector<SimulateJob>& jobs, const SimulationOptions& how);

}  // namespace tilescope::cli
