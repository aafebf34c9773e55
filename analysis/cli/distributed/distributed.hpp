// SPDX-License-Identifier: Apache-2.0
// The commands with --gpus: their options, and what they say of a problem on several GPUs.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/model/ranks/rank_account.hpp"
#include "analysis/model/ranks/rank_model.hpp"
#include "analysis/records/distributed_record.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "distributed/execution/enqueue_plan.hpp"
#include "distributed/execution/run_on_ranks.hpp"
#include "distributed/processes/process_group.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

/// Must outlive the parsing.
class GpuOptions {
 public:
  /// @param others  options of the command, added before, that mean nothing with --gpus and are refused there
  /// @param on_devices  whether the command can run the schedule, and --transport says what carries its
  /// copies
  void add_to(CLI::App& command, const std::vector<std::string>& others, bool on_devices);
  /// Whether --gpus asks for several ranks, or for one as several would be.
  bool given() const { return gpus_.has_value(); }
  /// zigzag without --schedule. @throws BadInput also where another of the options stands without --gpus
  DistributedOptions options() const;
  /// The same of --schedule NAME,NAME,...
  std::vector<DistributedOptions> all() const;
  /// The same of --gpus N,N,... as well.
  std::vector<DistributedOptions> across() const;
  Transport transport() const;  // with --processes NCCL
  /// @throws BadInput with --processes, which `why` says that the command cannot take
  void require_one_process(const std::string& why) const;
  /// With --processes: the processes of the launcher, connected; else null. What this one knows to be
  /// refused, it refuses before it waits for the others.
  /// @throws BadInput where ranks are threads (not `on_devices`), MachineLacks without a GPU
  std::shared_ptr<ProcessGroup> processes(bool on_devices) const;
  /// @throws BadInput if an option that needs --gpus stands without it
  void require_complete() const;

 private:
  std::optional<std::string> gpus_, schedule_, ulysses_, transport_;
  bool processes_ = false;
};

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
Output distributed_table(const ProgramAccount& account);
/// One row a schedule and pass, of the GPU that sends most.
Row comparison_heads();
Row comparison_row(const ProgramAccount& account);

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
