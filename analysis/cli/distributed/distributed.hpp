// SPDX-License-Identifier: Apache-2.0
// The commands with --gpus, and what they say of a problem on several GPUs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/model/ranks/rank_account.hpp"
#include "analysis/model/ranks/rank_model.hpp"
#include "analysis/records/distributed_record.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "distributed/execution/run_on_ranks.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/counters/block_counters.hpp"
#include "profiler/counters/link_throughput.hpp"

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

struct LinkReading {
  std::optional<LinkCount> counters, nvml;
};

class LinkMeter {
 public:
  /// @throws MachineLacks where neither can be read, with the reasons of both
  explicit LinkMeter(int gpus);
  void open();
  /// By GPU, since open(). Waits for the devices.
  std::vector<LinkReading> close();
  /// Why one of the two cannot be read; "" if both can.
  const std::string& lack() const { return lack_; }

 private:
  std::vector<std::unique_ptr<BlockCounters>> counters_;  // by GPU, or none
  std::vector<LinkThroughput> nvml_;
  std::vector<LinkCount> before_;
  std::string lack_;
};

}  // namespace tilescope::cli
