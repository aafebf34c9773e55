// SPDX-License-Identifier: Apache-2.0
// What `tilescope simulate` is asked for, what it plans before anything is replayed, and what it prints.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/refusals.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

inline constexpr const char* kDefaultMachine = "h200";

/// As typed. Must outlive the parsing.
struct SimulateArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  Shard shard;
  GpuOptions gpus;
  std::optional<std::string> link_rate, flop_rate;
  std::vector<std::string> machine, compare;
  std::string pages = "contiguous";
  std::optional<std::string> l2_bytes, ctas_per_sm, sram_bytes;
  std::string record;
  std::string program;
  bool closed_form_only = false;
  bool curve = false;
  bool detail = false;
  bool explain_model = false;
  bool tune_bytes = false;
  bool advise = false;
  bool dry_run = false;

  /// @param json  the file of --json: each part of a --shard writes one of its own
  void add_to(CLI::App& command, std::string& json);

  /// Attention as it is mostly run: in fp16, where neither a type is named nor a kernel, which has one.
  AttentionProblem simulated_problem() const;
  /// Those of --machine, with commas between them, and of --compare.
  std::vector<Machine> machines() const;
  /// @throws BadInput where there are several, which option `with` does not take
  std::string one_machine(const char* with) const;
  /// @throws BadInput for what one of the machines cannot be
  SimulationOptions simulation_options(const std::vector<Machine>& machines) const;
};

/// A tile program's text as a row beside the kernels.
struct ProgramKernel {
  std::string name;
  Kernel row;
};

struct SimulateJob {
  const Kernel* kernel = nullptr;
  AttentionProblem problem = {};
  const Machine* machine = nullptr;
  std::vector<PlannedPass> passes = {};
  std::shared_ptr<const ProgramKernel> program = nullptr;  // what `kernel` is, where a text is simulated
};

/// @throws BadInput where a kernel refuses the problem in some direction, or counts overflow
SimulateJob plan_job(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     const std::vector<Direction>& directions, const Machine& machine);

/// With progress on a terminal.
RunEntry replay(const SimulateJob& job, SimulationOptions options, const CommandContext& context);

/// Calls simulate(i) for all i below `count`, on all threads, with a step of `progress` for each.
/// @throws what the first of them threw
void simulate_side_by_side(std::size_t count, Progress& progress,
                           const std::function<void(std::size_t)>& simulate);

/// The kernels named, or a default one.
struct ChosenKernels {
  std::vector<const Kernel*> kernels;
  std::string line;  // which says what was taken by default, and why; empty where kernels were named
};
ChosenKernels chosen_kernels(const SimulateArguments& arguments, const AttentionProblem& problem,
                             const std::vector<Machine>& machines);

struct SimulatePlan {
  std::vector<SimulateJob> jobs;
  std::string remarks;  // lines: the tiles of --sram-bytes, and the default kernel or kernels
  Refusals refusals;
};
/// What is refused of a sweep is left out. @param machines  must outlive the jobs
/// @throws BadInput where nothing is left
SimulatePlan plan_jobs(const SimulateArguments& arguments, const std::vector<Machine>& machines);

/// Those of this process, where --shard says that there are others.
std::vector<SimulateJob> own_jobs(std::vector<SimulateJob> jobs, const Shard& shard, bool curve);

/// Says what takes kWorthSaying or longer before it begins.
std::string announcement(const std::vector<SimulateJob>& jobs, const SimulationOptions& how,
                         bool side_by_side = false);
/// The same of so many replays side by side, which take one core `core_seconds`.
std::string announcement(double core_seconds, std::size_t side_by_side);

/// --dry-run: each run and how long it may take.
std::string plan_text(const std::vector<SimulateJob>& jobs, const SimulationOptions& how);

/// Why jobs could not run as simulated, or not at the machine's full rates: lines that open with "warning: ",
/// of many the first few; none where they could.
/// @param timed  whether time bounds are printed: a small grid is warned of only then
std::string warning_lines(const std::vector<SimulateJob>& jobs, const SimulationOptions& how,
                          bool timed = true);

/// --tune-bytes: which tiles, orders and scans move least, at either boundary. @return an ExitCode
int tune_bytes(const SimulateArguments& arguments, const Machine& machine, const CommandContext& context);

/// --advise: which tile, order and splits are predicted to be done first, and whether K and V fit the L2.
/// @return an ExitCode
int advise_choices(const SimulateArguments& arguments, const Machine& machine, const CommandContext& context);

/// --record: replays the runs of a measured record in their own memory, prints measured beside simulated DRAM
/// bytes, and writes the simulation's own record.
/// @return an ExitCode @throws BadInput where --json names the record itself
int simulate_record(const SimulateArguments& arguments, const CommandContext& context);

/// The pass of the direction that moves most between SMs and L2, whose tile stands for the run's.
const PassRecord& main_pass(const RunEntry& run, Direction direction);

/// A block for each direction with a line for each run: kernels, or machines, side by side, or one of them;
/// all of one problem.
/// @param jobs  of the runs
Output comparison_table(const std::vector<RunEntry>& runs, const std::vector<SimulateJob>& jobs);

/// What decides the runs' DRAM bytes beside their tiles, and how far to trust them: the orders of CTAs and
/// tiles, the model of the L2; once for kernels of which it is the same. @param machines  of each run @param
/// lru_bytes  of an L2 that was asked for
std::string dram_basis(const std::vector<RunEntry>& runs, const std::vector<const Machine*>& machines,
                       std::optional<std::int64_t> lru_bytes);

/// What a layer's DRAM bytes make of a whole model, and of one of its tokens.
/// @param name_machine where there are several
std::string model_line(const RunEntry& run, const ModelShape& model, bool name_machine);

/// One column a pass, and one for their sum where there are several.
/// @param planned the passes of the run
Output pass_table(const RunEntry& run, Direction direction, const Machine& machine,
                  const std::vector<PlannedPass>& planned);

/// Predicted times, and how far to trust them; where no kernel of a GPU has one, why.
std::string predicted_line(const std::vector<RunEntry>& runs, Direction direction,
                           const std::vector<SimulateJob>& jobs, bool several_machines);

/// Between which DRAM bytes nine of ten launches lie; nothing where no counters judged the model of the L2.
std::string dram_interval_line(const std::vector<RunEntry>& runs, Direction direction,
                               const std::vector<SimulateJob>& jobs, bool several_machines);

/// What of the bytes at SM<->L2 belongs to no tile.
std::string beside_tiles_lines(const RunEntry& run, Direction direction,
                               const std::vector<PlannedPass>& planned);

/// A line for each direction of each run: bytes at both boundaries, and over what must be moved.
Output simulated_sweep_table(const std::vector<RunEntry>& runs);

/// What the direction reads at each boundary, over the lower bound of a theorem for the memory before it.
std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine);

/// "on NVIDIA H200: 132 SMs, L2 60.0 MiB in two partitions"
std::string machine_line(const Machine& machine, const SimulationOptions& how);

/// The peaks and bandwidths that time bounds use, each with its kind of evidence.
std::string ceiling_line(const Machine& machine, ElementType dtype);

/// DRAM bytes of the direction against L2 size; sizes that change nothing are left out.
Table curve_table(const RunEntry& run, Direction direction, const Machine& machine);

}  // namespace tilescope::cli
