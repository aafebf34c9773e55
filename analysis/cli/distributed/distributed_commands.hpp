// SPDX-License-Identifier: Apache-2.0
// The commands with --gpus.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed_output.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/records/distributed_record.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "distributed/execution/run_on_ranks.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

/// What the ranks are, and what they launch: threads of this CPU where --kernel is cpu:flash2, else GPUs, of
/// this process or of all `processes`.
/// @throws BadInput for any other kernel of the CPU, MachineLacks without enough GPUs
ProgramRunner program_runner(const GpuOptions& gpus, const std::shared_ptr<ProcessGroup>& processes,
                             const KernelOptions& kernel, const AttentionProblem& problem,
                             const std::string& otherwise);

/// What one of several processes prints and writes: all of it rank 0, nothing the others.
CommandContext context_of(const CommandContext& context, const std::shared_ptr<ProcessGroup>& processes);

/// Link bytes, memory, balance and time of schedules on a machine; of several, those that cannot split the
/// problem are left out with the reason. @return an ExitCode
int simulate_distributed(const CommandContext& context, const AttentionProblem& problem,
                         const std::vector<Direction>& directions,
                         const std::vector<DistributedOptions>& schedules, const std::string& machine,
                         const TypedRates& rates);

/// The ranks' results judged, and what they exchanged, where that is known, beside the closed form.
int verify_distributed(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       InputKind inputs, const std::vector<DistributedOptions>& schedules,
                       const ProgramRunner& run);

/// How GPUs share problems.
struct DeviceRuns {
  std::vector<AttentionProblem> problems;
  std::vector<Direction> directions;
  std::vector<DistributedOptions> schedules;
  Transport transport = Transport::copy_engine;
  const GpuKernel* kernel = nullptr;  // null: as DeviceRankOptions
  std::string machine = "h200";       // of the prediction
  std::shared_ptr<ProcessGroup> processes = nullptr;
};
/// The one GPU kernel that --kernel names; null without it. @throws BadInput for others
const GpuKernel* device_kernel(const KernelOptions& kernel);

/// Times on GPUs, beside one GPU with the whole problem, the launches alone, the link alone, and the model.
int bench_distributed(const CommandContext& context, const DeviceRuns& runs, int rounds);

/// Which schedules send so many bytes in one pass, or in those of a record of others.
int explain_link_bytes(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       int gpus, double sent_bytes);
/// @throws BadInput where the record has no bytes
int explain_peers(const CommandContext& context, const DistributedPeers& peers);

/// Bytes that the links' counters saw, by GPU, beside the closed form.
int profile_distributed(const CommandContext& context, const DeviceRuns& runs);

}  // namespace tilescope::cli
