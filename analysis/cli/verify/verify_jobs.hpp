// SPDX-License-Identifier: Apache-2.0
// The problems that `tilescope verify` judges, and the kernels to run on each.
#pragma once

#include <utility>
#include <vector>

#include "cpu_ref/judge/verify_cases.hpp"

namespace tilescope::cli {

/// One problem and the kernels to run on it.
struct VerifyJob {
  VerifyCase verify_case;
  std::vector<std::pair<const Kernel*, ProgramOptions>> runs;
};

/// Every kernel on the sweep of verify_cases(): those that take any tile with a small one, so that few rows
/// make many tiles; those with tiles of their own on lengths round all of these, at every head size whose
/// tiles differ.
std::vector<VerifyJob> sweep_jobs(const std::vector<const Kernel*>& kernels, SweepSize size);

/// Problems to be run again and again: each element type and mask, several CTAs for each row that is reduced
/// into.
std::vector<VerifyJob> repeat_jobs(const std::vector<const Kernel*>& kernels);

}  // namespace tilescope::cli
