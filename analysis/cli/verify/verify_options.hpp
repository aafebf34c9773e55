// SPDX-License-Identifier: Apache-2.0
// What `verify` is told on the command line, and what that comes to: kernels, jobs, memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/shard.hpp"
#include "analysis/cli/verify/verify_jobs.hpp"
#include "analysis/records/run_record.hpp"

namespace tilescope::cli {

struct VerifyOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  GpuOptions gpus;
  Shard shard;
  std::optional<std::string> inputs;
  std::optional<std::string> repeat, rows;
  bool quick = false, full = false, locate = false, worst = false, verbose = false, gradients = false;
};

/// Those named, or all that can run here.
std::vector<const Kernel*> chosen_kernels(const VerifyOptions& options);
/// The one problem that the options name, on all chosen kernels.
std::vector<VerifyJob> problem_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels);
/// The device in a record of kernels that run on it.
void note_device(MachineInfo& machine, const std::vector<const Kernel*>& kernels);
/// Memory of the reference and of the largest kernel's tensors. [bytes]
std::int64_t bytes_needed(const VerifyJob& job);

}  // namespace tilescope::cli
