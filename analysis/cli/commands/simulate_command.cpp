// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate`: bytes and FLOPs of a kernel's passes on a machine model, by formula and by replay.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed_commands.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/simulate/simulate_again.hpp"
#include "analysis/cli/simulate/simulate_plan.hpp"
#include "analysis/cli/simulate/simulate_warnings.hpp"
#include "analysis/cli/simulate/tune_bytes.hpp"
#include "analysis/cli/tables/simulate_tables.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::string machine_line(const Machine& machine, const SimulationOptions& how) {
  const auto& given_l2_bytes = how.l2_bytes;
  if (!given_l2_bytes && machine.split_l2()) {
    const bool random = how.pages == PagePlacement::random;
    return fmt::format("on {}: {} SMs, L2 {} in two partitions{}\n", machine.title, machine.sm_count.value,
                       format_capacity(machine.l2_bytes.value),
                       random ? "; pages at random places, DRAM bytes are medians over layouts" : "");
  }
  const std::int64_t l2_bytes = given_l2_bytes.value_or(machine.l2_effective_bytes.value);
  const double share = static_cast<double>(l2_bytes) / static_cast<double>(machine.l2_bytes.value);
  return fmt::format("on {}: {} SMs, L2 {}, of which {} ({:.0f} %) simulated\n", machine.title,
                     machine.sm_count.value, format_capacity(machine.l2_bytes.value),
                     format_capacity(l2_bytes), 100 * share);
}

int simulate_tuning(const SimulateArguments& arguments, const Machine& machine,
                    const CommandContext& context) {
  if (arguments.sweep.given() || arguments.kernel.tile_given() || arguments.sram_bytes) {
    throw BadInput("--tune-bytes", "given", "must stand without --sweep, --tile and --sram-bytes");
  }
  const SimulationOptions how = arguments.simulation_options(machine);
  const std::vector<Direction> directions = arguments.problem.directions();
  RunRecord record = start_record(context.argv);
  const auto [kernels, line] = chosen_kernels(arguments, arguments.simulated_problem(), {machine});
  context.print(line);
  for (const Kernel* kernel : kernels) {
    const AttentionProblem problem = arguments.problem.in_type_of({kernel}, arguments.simulated_problem());
    context.print(fmt::format("{}, {}\n{}", kernel->name, describe(problem), machine_line(machine, how)));
    for (const Direction direction : directions) {
      const ByteTuning tuning =
          tune_bytes(*kernel, problem, direction, arguments.kernel.program_options(*kernel, problem), machine,
                     how, context);
      context.print("\n" + tuning_text(tuning, direction));
      record.runs.insert(record.runs.end(), tuning.front.begin(), tuning.front.end());
    }
  }
  context.write_json(to_json_text(record));
  return kFine;
}

/// --gpus: bytes on links, and times, of the problem shared by GPUs.
int simulate_ranks(const SimulateArguments& arguments, const CommandContext& context) {
  const Progress progress(context, "simulating several GPUs");
  return simulate_distributed(context, arguments.simulated_problem(), arguments.problem.directions(),
                              arguments.gpus.across(), arguments.machine,
                              {arguments.link_rate, arguments.flop_rate});
}

/// What is simulated on what: stands above the tables.
std::string heading(const SimulateArguments& arguments, const AttentionProblem& first_problem,
                    const std::vector<Machine>& machines, const SimulationOptions& how) {
  std::string text;
  if (!arguments.sweep.given()) text += describe(first_problem) + "\n";
  for (const Machine& machine : machines)
    text += machine_line(machine, how) + ceiling_line(with_measured_ceilings(machine), first_problem.dtype);
  return text;
}

void print_details(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                   const SimulateArguments& arguments, const SimulationOptions& how,
                   const CommandContext& context) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Machine rated = with_measured_ceilings(*jobs[i].machine);
    for (const Direction direction : arguments.problem.directions()) {
      context.print(fmt::format("\n{}, {}\n{}{}", runs[i].kernel, to_string(direction),
                                pass_table(runs[i], direction, rated, jobs[i].passes),
                                bound_lines(runs[i], direction, jobs[i].kernel->algorithm, rated)));
      if (arguments.curve && how.replay) context.print(curve_table(runs[i], direction));
    }
    if (how.replay) context.print(dram_basis({runs[i]}, {jobs[i].machine}, how.l2_bytes));
  }
}

void print_comparison(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                      const std::vector<Machine>& machines, const SimulationOptions& how,
                      const CommandContext& context) {
  std::vector<Machine> rated;
  for (const Machine& machine : machines) rated.push_back(with_measured_ceilings(machine));
  context.print(comparison_table(runs, rated));
  if (how.replay) {
    std::vector<const Machine*> simulated;
    for (const SimulateJob& job : jobs) simulated.push_back(job.machine);
    context.print("\n" + dram_basis(runs, simulated, how.l2_bytes));
  }
  context.print("--detail has every pass.\n");
}

/// Where the problem is a layer of a published model: what its runs make of the model.
void print_model(const std::vector<RunEntry>& runs, const ModelShape& model, bool name_machine,
                 const CommandContext& context) {
  std::string lines;
  for (const RunEntry& run : runs) {
    const std::string line = model_line(run, model, name_machine);
    if (lines.find(line) == std::string::npos) lines += line;  // formulas are those of any machine
  }
  context.print("\n" + lines);
}

void print_results(const SimulateArguments& arguments, const std::vector<SimulateJob>& jobs,
                   const std::vector<RunEntry>& runs, const std::vector<Machine>& machines,
                   const SimulationOptions& how, const CommandContext& context) {
  if (arguments.sweep.given()) {
    context.print("\n" + simulated_sweep_table(runs));
  } else if (jobs.size() == 1 || arguments.detail) {
    print_details(jobs, runs, arguments, how, context);
  } else {
    print_comparison(jobs, runs, machines, how, context);
  }
  if (const ModelShape* model = arguments.problem.model())
    print_model(runs, *model, machines.size() > 1, context);
}

/// The runs of one problem or of a sweep, on machines.
int simulate_runs(const SimulateArguments& arguments, const std::vector<Machine>& machines,
                  const CommandContext& context) {
  const SimulationOptions how = arguments.simulation_options(machines.front());
  const std::optional<PaperTile> paper =
      paper_tile(arguments, arguments.simulated_problem(), machines.front());
  if (arguments.shard.given() && !arguments.sweep.given()) {
    throw BadInput("--shard", *arguments.shard.name(), "must stand with --sweep, whose runs it divides");
  }
  SimulatePlan plan = plan_jobs(arguments, arguments.problem.directions(), paper, machines);
  const AttentionProblem first_problem = plan.jobs.front().problem;
  const std::vector<SimulateJob> jobs = own_jobs(std::move(plan.jobs), arguments.shard, how.l2_curve);
  if (arguments.dry_run) {
    context.print(plan_text(jobs, how));
    return kFine;
  }
  context.print(heading(arguments, first_problem, machines, how));
  if (paper) context.print(paper->remark);
  context.print(plan.default_kernels + warning_lines(jobs, how) + announcement(jobs, how));
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  record.shard = arguments.shard.name();
  for (const SimulateJob& job : jobs) record.runs.push_back(replay(job, how, context));
  print_results(arguments, jobs, record.runs, machines, how, context);
  if (how.replay) record.cost = cost_since(start);
  context.write_json(to_json_text(record));
  return kFine;
}

int simulate(const SimulateArguments& arguments, const CommandContext& context) {
  if (!arguments.record.empty()) return simulate_again(arguments, context);
  arguments.gpus.require_complete();
  if (arguments.gpus.given()) return simulate_ranks(arguments, context);
  if (arguments.flop_rate) throw BadInput("--flop-rate", *arguments.flop_rate, "must stand with --gpus N");
  if (arguments.link_rate) throw BadInput("--link-rate", *arguments.link_rate, "must stand with --gpus N");
  const std::vector<Machine> machines = arguments.machines();
  return arguments.tune_bytes ? simulate_tuning(arguments, machines.front(), context)
                              : simulate_runs(arguments, machines, context);
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<SimulateArguments>();
  CLI::App& command =
      add_command(app, context, "simulate", "bytes and FLOPs of a kernel's passes on a machine model",
                  [arguments, &context] { return simulate(*arguments, context); });
  arguments->add_to(command, context.json);
  show_examples(
      command,
      {{"simulate --preset llama3-8b --pass fwd+bwd", "every pass of one layer on an H200"},
       {"simulate --preset gpt2-medium --kernel cpu:flash1 --kernel cpu:flash2", "two kernels side by side"},
       {"simulate --model llama3-70b --tp 8 --decode --seqlen 32k",
        "bytes of a layer, of the model and of a token"},
       {"simulate --preset llama3-8b --machine a100-80gb,h200", "two machines side by side"},
       {"simulate --preset llama3-8b --gpus 4 --schedule zigzag --pass fwd+bwd",
        "link bytes, memory, balance and time of four GPUs"},
       {"simulate --preset llama3-8b --tune-bytes", "which tile, order and scan would move less"},
       {"simulate --sweep seqlen=1k..16k --heads 16 --dtype fp16 --machine a100-80gb",
        "bytes against length"}});
}

}  // namespace tilescope::cli
