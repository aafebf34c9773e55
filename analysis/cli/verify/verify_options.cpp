// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/verify_options.hpp"

#include <algorithm>

#include "analysis/model/counts/tensor_bytes.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

std::vector<const Kernel*> chosen_kernels(const VerifyOptions& options) {
  std::vector<const Kernel*> kernels = options.kernel.kernels({});
  for (const Kernel* kernel : kernels) require_runnable(*kernel);
  if (options.kernel.given()) return kernels;
  for (const Kernel* kernel : all_kernels()) {
    if (is_runnable(*kernel)) kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<VerifyJob> problem_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  VerifyJob job;
  job.verify_case.problem = options.problem.problem();
  job.verify_case.direction = options.problem.directions().back();
  if (options.inputs) job.verify_case.inputs = parse_input_kind(*options.inputs);
  for (const Kernel* kernel : kernels) {
    const ProgramOptions program_options = options.kernel.program_options(*kernel, job.verify_case.problem);
    if (options.kernel.given()) {
      require_supported(*kernel, job.verify_case.problem, job.verify_case.direction, program_options);
    }
    job.runs.emplace_back(kernel, program_options);
  }
  return {job};
}

void note_device(MachineInfo& machine, const std::vector<const Kernel*>& kernels) {
  const bool any = std::any_of(kernels.begin(), kernels.end(),
                               [](const Kernel* kernel) { return kernel->name.starts_with("gpu:"); });
  if (!any) return;
  const DeviceFacts device = device_facts().value();
  machine.name = device.name;
  machine.chip = device.chip.name();
  machine.driver = device.driver;
  machine.cuda = device.cuda;
}

std::int64_t bytes_needed(const VerifyJob& job) {
  const AttentionProblem& p = job.verify_case.problem;
  std::vector<TileProgram> programs;
  const auto add = [&](const Kernel& kernel, const ProgramOptions& options) {
    for (Direction direction : {Direction::forward, job.verify_case.direction}) {
      for (TileProgram& program : kernel.programs(direction, p, options))
        programs.push_back(std::move(program));
    }
  };
  add(standard_kernel(), standard_kernel().default_options(p));
  for (const auto& [kernel, options] : job.runs) add(*kernel, options);
  constexpr std::int64_t kFp64Copies = 2;  // inputs and results of the exact reference
  const std::int64_t rows = p.batch * (p.heads * p.seqlen_q + p.heads_kv * p.seqlen_k);
  return tensor_bytes(programs) + kFp64Copies * 2 * rows * p.head_dim * 8;
}

}  // namespace tilescope::cli
