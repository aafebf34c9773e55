// SPDX-License-Identifier: Apache-2.0
// The runs that `profile --kernel` is to measure.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "analysis/cli/profile/profile_kernels.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

/// One run to be measured.
struct Job {
  const GpuKernel* kernel;
  AttentionProblem problem;
  ProgramOptions options;
  std::vector<Direction> directions;
  std::vector<PlannedPass> passes;

  std::string title() const { return fmt::format("{} {}", kernel->row.name, describe(problem)); }
};

struct Plan {
  std::vector<Job> jobs;
  std::vector<std::string> left_out;
};

/// Every kernel on every problem; combinations of a sweep that a kernel refuses are left out, with reasons.
/// @throws BadInput where no kernel is named, or one refuses the only problem
Plan plan_jobs(const ProfileKernelOptions& arguments, const Machine& machine);

/// What is to be judged before, with the options that it is measured with.
std::vector<RowsJob> rows_jobs(const Plan& plan, const Machine& machine);

}  // namespace tilescope::cli
