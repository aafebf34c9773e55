// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate`: bytes and FLOPs of a kernel's passes on a machine model, by formula and by replay.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kMachineGroup = "Machine";
constexpr const char* kSeveralGpusGroup = "Several GPUs";

void add_subject_options(SimulateArguments& arguments, CLI::App& command) {
  arguments.problem.add_to(command);
  refuse_v_transposed(command);
  arguments.kernel.add_to(command, true);
  arguments.sweep.add_to(command);
  add_value(command, "--record", arguments.record, "FILE",
            "simulate the runs of a measured record, with the memory that they had, in place of a problem; "
            "--json writes the simulation alone, which names that record");
  add_value(command, "--program", arguments.program, "FILE", "a tile program as a text, examples/programs")
      ->excludes("--record");
}

void add_machine_options(SimulateArguments& arguments, CLI::App& command) {
  add_value(command, "--machine", arguments.machine, "MACHINE|FILE.json",
            "a machine's name (tilescope list machines) or a file; several with commas, or by repeating it; "
            "default h200")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group(kMachineGroup);
  add_value(command, "--compare", arguments.compare, "MACHINE|FILE.json",
            "another machine beside it; may be repeated")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group(kMachineGroup)
      ->excludes("--record");
  add_value(command, "--l2-bytes", arguments.l2_bytes, "BYTES",
            "capacity of an LRU cache in place of the machine's L2", kMachineGroup);
  add_value(
      command, "--pages", arguments.pages, "contiguous|random",
      "where the tensors' pages lie in memory: each tensor in one piece (the default), or every page at a "
      "random place",
      kMachineGroup)
      ->excludes("--record");
  // Its former name.
  command.add_option("--memory", arguments.pages)->group("")->excludes("--record")->excludes("--pages");
  add_value(command, "--ctas-per-sm", arguments.ctas_per_sm, "N",
            "CTAs that run at once on an SM; default: what shared memory allows", kMachineGroup);
  add_value(
      command, "--sram-bytes", arguments.sram_bytes, "BYTES|machine",
      "choose the tile by FlashAttention's rule for so much on-chip memory; machine: a CTA's shared memory",
      kMachineGroup)
      ->excludes("--tile")
      ->excludes("--sweep");
}

void add_replay_options(SimulateArguments& arguments, CLI::App& command) {
  command.add_flag("--closed-form", arguments.closed_form_only, "formulas alone, no replay")
      ->group(kMachineGroup);
  command.add_flag("--curve", arguments.curve, "also DRAM bytes against L2 size")->group(kMachineGroup);
  command
      .add_flag("--tune-bytes", arguments.tune_bytes,
                "which tiles, orders and scans move least: the Pareto front of SM<->L2 and DRAM bytes")
      ->group(kMachineGroup)
      ->excludes("--record");
  command
      .add_flag("--advise", arguments.advise,
                "which tile, order and splits are predicted to be done first, and whether K and V fit the L2")
      ->group(kMachineGroup)
      ->excludes("--record")
      ->excludes("--tune-bytes");
  command
      .add_flag("--dry-run", arguments.dry_run,
                "what would be simulated and how long it takes, without doing it")
      ->excludes("--record")
      ->excludes("--tune-bytes")
      ->excludes("--advise");
  command.add_flag("--detail", arguments.detail, "every number of every pass");
  command.add_flag("--explain-model", arguments.explain_model,
                   "what the numbers rest on: rates, the model of the L2, the progress of CTAs");
}

void add_gpu_options(SimulateArguments& arguments, CLI::App& command) {
  arguments.gpus.add_to(
      command, {"--kernel",       "--tile",        "--backward",        "--order",       "--scan",
                "--fp8-sums",     "--variant",     "--diagonal-slices", "--splits",      "--pack-gqa",
                "--query-splits", "--sweep",       "--record",          "--compare",     "--l2-bytes",
                "--pages",        "--ctas-per-sm", "--sram-bytes",      "--closed-form", "--curve",
                "--tune-bytes",   "--advise",      "--dry-run",         "--detail",      "--shard",
                "--explain-model"},
      false);
  add_value(command, "--flop-rate", arguments.flop_rate, "TFLOPS",
            "TFLOP/s of a GPU's launches, in place of the machine's peak", kSeveralGpusGroup);
  add_value(command, "--link-rate", arguments.link_rate, "BYTES",
            "bytes a second to another GPU, one way, in place of the machine's: 50GB", kSeveralGpusGroup);
}

}  // namespace

void SimulateArguments::add_to(CLI::App& command, std::string& json) {
  add_subject_options(*this, command);
  add_machine_options(*this, command);
  add_replay_options(*this, command);
  shard.add_to(command, {"--record", "--tune-bytes", "--advise"}, json);
  add_gpu_options(*this, command);
}

AttentionProblem SimulateArguments::simulated_problem() const {
  AttentionProblem simulated = problem.problem();
  if (!problem.type_given() && !kernel.given() && !sram_bytes) simulated.dtype = ElementType::fp16;
  return simulated;
}

std::vector<Machine> SimulateArguments::machines() const {
  std::vector<Machine> machines;
  const auto add = [&machines](const std::string& names) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      Machine loaded = load_machine(name);
      const auto same = [&loaded](const Machine& other) { return other.name == loaded.name; };
      if (std::ranges::none_of(machines, same)) machines.push_back(std::move(loaded));
    }
  };
  if (machine.empty()) add(kDefaultMachine);
  for (const std::string& names : machine) add(names);
  for (const std::string& names : compare) add(names);
  if (machines.empty()) throw BadInput("machine", "'" + machine.front() + "'", "must name one");
  return machines;
}

namespace {

/// 0 is none; a number that is likely to have lost its unit is refused.
std::int64_t parse_l2_bytes(const std::string& text) {
  constexpr std::int64_t kLeast = 1 << 10;
  const std::int64_t bytes = parse_bytes_in("l2-bytes", text, 0, std::int64_t{1} << 50);
  if (bytes == 0 || bytes >= kLeast) return bytes;
  throw BadInput(
      "l2-bytes", text,
      fmt::format("is {} bytes: say the unit, as in {}MB or {}MiB; 0 is no L2, and the least is 1 KiB", bytes,
                  bytes, bytes));
}

}  // namespace

std::string SimulateArguments::one_machine(const char* with) const {
  const std::string all = fmt::format("{}", fmt::join(machine, ","));
  if (all.find(',') != std::string::npos)
    throw BadInput("--machine", all, fmt::format("must be one with {}", with));
  return machine.empty() ? kDefaultMachine : all;
}

SimulationOptions SimulateArguments::simulation_options(const std::vector<Machine>& on) const {
  SimulationOptions how;
  if (l2_bytes) how.l2_bytes = parse_l2_bytes(*l2_bytes);
  if (ctas_per_sm) {
    std::int64_t most = on.front().ctas_per_sm.value;  // that every machine can hold
    for (const Machine& each : on) most = std::min(most, each.ctas_per_sm.value);
    how.ctas_per_sm = parse_integer_in("ctas-per-sm", *ctas_per_sm, 1, most);
  }
  how.replay = !closed_form_only;
  how.dram_intervals = true;
  how.l2_curve = curve;
  how.pages = parse_page_placement(pages);
  return how;
}

namespace {

/// --gpus: bytes on links, and times, of the problem shared by GPUs.
int simulate_ranks(const SimulateArguments& arguments, const CommandContext& context) {
  const Progress progress(context, "simulating several GPUs");
  return simulate_distributed(context, arguments.simulated_problem(), arguments.problem.directions(),
                              arguments.gpus.across(), arguments.one_machine("--gpus"),
                              {arguments.link_rate, arguments.flop_rate});
}

void print_details(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                   const SimulateArguments& arguments, const SimulationOptions& how,
                   const CommandContext& context) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Machine rated = with_measured_ceilings(*jobs[i].machine);
    for (const Direction direction : arguments.problem.directions()) {
      context.print(pass_table(runs[i], direction, rated, jobs[i].passes));
      context.print(bound_lines(runs[i], direction, jobs[i].kernel->algorithm, rated));
      if (arguments.curve && how.replay) context.print(curve_table(runs[i], direction, rated));
    }
  }
}

/// --curve without --detail.
void print_curves(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                  const std::vector<Direction>& directions, const CommandContext& context) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (const Direction direction : directions) {
      context.print(
          fmt::format("\n{}, {}, {}\n", runs[i].kernel, to_string(direction), jobs[i].machine->name));
      context.print(curve_table(runs[i], direction, *jobs[i].machine));
    }
  }
}

/// --explain-model: what the numbers of the tables rest on.
std::string model_lines(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                        const std::vector<Machine>& machines, const SimulationOptions& how) {
  std::string text = "\n";
  std::set<ElementType> multiplied;
  for (const SimulateJob& job : jobs) {
    multiplied.insert(product_type(job.problem.dtype, job.kernel->math_unit));
  }
  for (const Machine& machine : machines) {
    for (const ElementType type : multiplied) text += ceiling_line(with_measured_ceilings(machine), type);
  }
  if (!how.replay) return text;
  std::vector<const Machine*> simulated;
  for (const SimulateJob& job : jobs) simulated.push_back(job.machine);
  const bool several = std::ranges::any_of(runs, [](const RunEntry& run) { return run.passes.size() > 1; });
  if (several) text += wrapped("Each pass begins with an L2 that holds nothing of the problem.", "  ");
  return text + dram_basis(runs, simulated, how.l2_bytes);
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
    context.print(simulated_sweep_table(runs));
  } else if (arguments.detail) {
    print_details(jobs, runs, arguments, how, context);
  } else {
    context.print(comparison_table(runs, jobs));
    if (arguments.curve && how.replay) print_curves(jobs, runs, arguments.problem.directions(), context);
  }
  if (arguments.explain_model) context.print(model_lines(jobs, runs, machines, how));
  if (!arguments.sweep.given() && !arguments.detail && !arguments.explain_model) {
    context.print(wrapped("--detail has every pass, --explain-model what the numbers rest on."));
  }
  if (const ModelShape* model = arguments.problem.model())
    print_model(runs, *model, machines.size() > 1, context);
}

std::size_t directions_of(const SimulateJob& job) {
  std::set<Direction> directions;
  for (const PlannedPass& pass : job.passes) directions.insert(pass.direction);
  return directions.size();
}

/// The runs of one problem or of a sweep, on machines.
int simulate_runs(const SimulateArguments& arguments, const std::vector<Machine>& machines,
                  const CommandContext& context) {
  const SimulationOptions how = arguments.simulation_options(machines);
  if (arguments.shard.given() && !arguments.sweep.given()) {
    throw BadInput("--shard", *arguments.shard.name(), "must stand with --sweep, whose runs it divides");
  }
  SimulatePlan plan = plan_jobs(arguments, machines);
  const AttentionProblem first_problem = plan.jobs.front().problem;
  std::size_t planned = 0;
  for (const SimulateJob& job : plan.jobs) planned += directions_of(job);
  const std::string refused = plan.refusals.text(planned);
  const std::vector<SimulateJob> jobs = own_jobs(std::move(plan.jobs), arguments.shard, how.l2_curve);
  if (arguments.dry_run) {
    context.print(plan_text(jobs, how) + refused);
    return kFine;
  }
  std::string heading = arguments.sweep.given() ? "" : describe(first_problem) + "\n";
  for (const Machine& machine : machines) heading += machine_line(machine, how);
  context.print(heading + plan.remarks + warning_lines(jobs, how, !arguments.sweep.given()) +
                announcement(jobs, how));
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  record.shard = arguments.shard.name();
  for (const SimulateJob& job : jobs) record.runs.push_back(replay(job, how, context));
  print_results(arguments, jobs, record.runs, machines, how, context);
  context.print((refused.empty() ? "" : "\n") + refused);
  record.refused = plan.refusals.lines();
  if (how.replay) record.cost = cost_since(start);
  context.write_json(to_json_text(record));
  return kFine;
}

int simulate(const SimulateArguments& arguments, const CommandContext& context) {
  if (!arguments.record.empty()) return simulate_record(arguments, context);
  arguments.gpus.require_complete();
  if (arguments.gpus.given()) return simulate_ranks(arguments, context);
  if (arguments.flop_rate) throw BadInput("--flop-rate", *arguments.flop_rate, "must stand with --gpus N");
  if (arguments.link_rate) throw BadInput("--link-rate", *arguments.link_rate, "must stand with --gpus N");
  const std::vector<Machine> machines = arguments.machines();
  if (!arguments.tune_bytes && !arguments.advise) return simulate_runs(arguments, machines, context);
  if (machines.size() > 1) arguments.one_machine(arguments.advise ? "--advise" : "--tune-bytes");
  if (arguments.advise) return advise_choices(arguments, machines.front(), context);
  return tune_bytes(arguments, machines.front(), context);
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<SimulateArguments>();
  CLI::App& command = add_command(app, context, "simulate",
                                  "bytes of a kernel on a GPU that need not be here, over what it must move",
                                  [arguments, &context] { return simulate(*arguments, context); });
  arguments->add_to(command, context.json);
  add_format_option(command, context);
  show_examples(
      command,
      {{"simulate --preset llama3-8b --pass fwd+bwd", "one layer on an H200, forward and backward"},
       {"simulate --preset gpt2-medium --kernel cpu:flash1 --kernel cpu:flash2", "two kernels side by side"},
       {"simulate --model llama3-70b --tp 8 --decode --seqlen 32k",
        "bytes of a layer, of the model and of a token"},
       {"simulate --preset llama3-8b --machine a100-80gb,h200", "two machines side by side"},
       {"simulate --preset llama3-8b --gpus 4 --schedule zigzag --pass fwd+bwd",
        "link bytes, memory, balance and time of four GPUs"},
       {"simulate --preset llama3-8b --tune-bytes", "which tile, order and scan would move less"},
       {"simulate --preset llama3-8b --advise", "which choice would be done first, and the runner-up"},
       {"simulate --sweep seqlen=1k..16k --heads 16 --dtype fp16 --machine a100-80gb",
        "bytes against length"}});
}

}  // namespace tilescope::cli
