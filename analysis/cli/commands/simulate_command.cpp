// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate`: bytes and FLOPs of a kernel's passes on a machine model, by formula and by replay.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed_commands.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/shard.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/simulate/simulate_job.hpp"
#include "analysis/cli/simulate/simulate_warnings.hpp"
#include "analysis/cli/simulate/tune_bytes.hpp"
#include "analysis/cli/tables/simulate_tables.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/replay/replay_cost.hpp"
#include "analysis/replay/simulate_record.hpp"
#include "analysis/replay/simulate_run.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

struct SimulateArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  Shard shard;
  GpuOptions gpus;
  std::optional<std::string> link_rate, flop_rate;
  std::string machine = kDefaultMachine;
  std::vector<std::string> compare;
  std::string pages = "contiguous";
  std::optional<std::string> l2_bytes, ctas_per_sm, sram_bytes;
  std::string record;
  bool closed_form_only = false;
  bool curve = false;
  bool detail = false;
  bool tune_bytes = false;
  bool dry_run = false;
};

/// The tile of FlashAttention's Algorithm 1, line 1, for the on-chip memory of --sram-bytes.
struct PaperTile {
  TileShape tile;
  std::string remark;
};

std::optional<PaperTile> paper_tile(const SimulateArguments& arguments, const AttentionProblem& problem,
                                    const Machine& machine) {
  if (!arguments.sram_bytes) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t sram_bytes = *arguments.sram_bytes == "machine"
                                      ? machine.shared_bytes_per_cta.value
                                      : parse_bytes_in("sram-bytes", *arguments.sram_bytes, 1, kMost);
  const std::int64_t m = std::max<std::int64_t>(1, sram_bytes / element_bytes(problem.dtype));
  const TileShape tile = flash1_tile_rule(m, problem.head_dim);
  const std::int64_t needed = flash1_sram_elements_needed(tile, problem.head_dim);
  return PaperTile{
      tile, fmt::format(
                "tile {}x{} by the paper's rule for M = {} elements: Q, O, K, V and S take {}, {}\n",
                tile.block_m, tile.block_n, m, needed,
                needed <= m ? "which fits" : "MORE than M (the rule is asymptotic; it fits from M = 8 d^2)")};
}

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

/// Measured and simulated DRAM bytes of a pass, where both are there.
std::string comparison_line(const RunEntry& run, const PassRecord& pass) {
  if (!pass.measured || !pass.measured->dram_read_bytes || !pass.simulated) return "";
  const std::int64_t measured = *pass.measured->dram_read_bytes;
  const double ratio = static_cast<double>(pass.simulated->dram_read_bytes) / static_cast<double>(measured);
  const char* placement = run.pages == PagePlacement::random ? " random pages" : "";
  return fmt::format("{:<18} {:<9} {:<44} {:>9} {:>9} {:>+7.1f} %\n", run.kernel, pass.name,
                     describe(run.problem) + placement, format_bytes(measured),
                     format_bytes(pass.simulated->dram_read_bytes), 100 * (ratio - 1));
}

/// A record of this simulation, which measured ones are not changed by.
RunRecord simulation_record(const RunRecord& measured, const SimulateArguments& arguments,
                            const CommandContext& context) {
  RunRecord record = start_record(context.argv);
  record.simulation_of = measured.simulation_of.value_or(
      SimulationSource{arguments.record, measured.argv, measured.when, measured.git, {}});
  record.simulation_of->machine_file = arguments.machine;
  for (const RunEntry& run : measured.runs) record.runs.push_back(without_measurements(run));
  return record;
}

int simulate_again(const SimulateArguments& arguments, const CommandContext& context) {
  std::error_code ignored;
  if (std::filesystem::equivalent(arguments.record, context.json, ignored)) {
    throw BadInput("--json", context.json, "must be another file than the record, which does not change");
  }
  const Machine machine = load_machine(arguments.machine);
  RunRecord record = read_run_record(arguments.record);
  const auto runs = static_cast<std::int64_t>(record.runs.size());
  for (const RunEntry& run : record.runs) find_kernel(run.kernel);  // before any is replayed
  Progress progress(context, "replaying " + arguments.record, runs);
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < runs; ++i) {
    try {
      RunEntry& run = record.runs[static_cast<std::size_t>(i)];
      run = tilescope::simulate_again(run, find_kernel(run.kernel), machine,
                                      {.replay = !arguments.closed_form_only});
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
#pragma omp critical
    progress.step();
  }
  if (failure) std::rethrow_exception(failure);
  context.print("DRAM reads: kernel, pass, problem, measured, simulated, difference\n");
  for (const RunEntry& run : record.runs) {
    for (const PassRecord& pass : run.passes) context.print(comparison_line(run, pass));
  }
  context.write_json(to_json_text(simulation_record(record, arguments, context)));
  return kFine;
}

/// Those of --machine, with commas between them, and of --compare.
std::vector<Machine> chosen_machines(const SimulateArguments& arguments) {
  std::vector<Machine> machines;
  const auto add = [&machines](const std::string& names) {
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      Machine machine = load_machine(name);
      const auto same = [&machine](const Machine& other) { return other.name == machine.name; };
      if (std::none_of(machines.begin(), machines.end(), same)) machines.push_back(std::move(machine));
    }
  };
  add(arguments.machine);
  for (const std::string& names : arguments.compare) add(names);
  if (machines.empty()) throw BadInput("machine", "'" + arguments.machine + "'", "must name one");
  return machines;
}

/// Attention as it is mostly run: in fp16, where neither a type is named nor a kernel, which has one.
AttentionProblem simulated_problem(const SimulateArguments& arguments) {
  AttentionProblem problem = arguments.problem.problem();
  if (!arguments.problem.type_given() && !arguments.kernel.given() && !arguments.sram_bytes)
    problem.dtype = ElementType::fp16;
  return problem;
}

/// The kernels named, or a default one.
struct ChosenKernels {
  std::vector<const Kernel*> kernels;
  std::string line;  // which says what was taken by default, and why; empty where kernels were named
};

ChosenKernels chosen_kernels(const SimulateArguments& arguments, const AttentionProblem& problem,
                             const std::vector<Machine>& machines) {
  if (arguments.kernel.given()) return {arguments.kernel.kernels({}), ""};
  const DefaultKernel chosen =
      arguments.sram_bytes
          ? DefaultKernel{&find_kernel("cpu:flash2"), "it takes the tile of --sram-bytes"}
          : default_kernel(machines, problem, arguments.problem.directions(), arguments.kernel);
  return {{chosen.kernel},
          wrapped(fmt::format("kernel: {}, because {}", chosen.kernel->name, chosen.reason))};
}

struct Plan {
  std::vector<SimulateJob> jobs;
  std::string default_kernels;  // lines: one, but where a sweep needs several
};

Plan plan_jobs(const SimulateArguments& arguments, const std::vector<Direction>& directions,
               const std::optional<PaperTile>& paper, const std::vector<Machine>& machines) {
  Plan plan;
  for (const SweepPoint& point : arguments.sweep.points(simulated_problem(arguments))) {
    const auto [kernels, line] = chosen_kernels(arguments, point.problem, machines);
    if (plan.default_kernels.find(line) == std::string::npos) plan.default_kernels += line;
    AttentionProblem problem = point.problem;
    if (!arguments.sweep.sets("dtype")) problem = arguments.problem.in_type_of(kernels, problem);
    for (const Machine& machine : machines) {
      for (const Kernel* kernel : kernels) {
        ProgramOptions options = point.apply_to(arguments.kernel.program_options(*kernel, problem));
        if (paper) options.set_tile(paper->tile);
        plan.jobs.push_back(plan_job(*kernel, problem, options, directions, machine));
      }
    }
  }
  return plan;
}

/// Those of this process, where --shard says that there are others.
std::vector<SimulateJob> own_jobs(std::vector<SimulateJob> jobs, const Shard& shard, bool curve) {
  constexpr double kEvenByFormula = 1e-3;  // seconds
  std::vector<double> costs;
  for (const SimulateJob& job : jobs) costs.push_back(kEvenByFormula + replay_seconds(job.passes, curve));
  return shard.part_of(std::move(jobs), costs);
}

SimulationOptions simulation_options(const SimulateArguments& arguments, const Machine& machine) {
  SimulationOptions how;
  if (const auto& text = arguments.l2_bytes) {
    how.l2_bytes = parse_bytes_in("l2-bytes", *text, 0, std::int64_t{1} << 50);
  }
  if (const auto& text = arguments.ctas_per_sm) {
    how.ctas_per_sm = parse_integer_in("ctas-per-sm", *text, 1, machine.ctas_per_sm.value);
  }
  how.replay = !arguments.closed_form_only;
  how.l2_curve = arguments.curve;
  how.pages = parse_page_placement(arguments.pages);
  return how;
}

void print_details(const std::vector<SimulateJob>& jobs, const std::vector<RunEntry>& runs,
                   const std::vector<Direction>& directions, const SimulateArguments& arguments,
                   const SimulationOptions& how, const CommandContext& context) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Machine rated = with_measured_ceilings(*jobs[i].machine);
    for (const Direction direction : directions) {
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

/// Says what takes a minute or more before it begins.
std::string announcement(const std::vector<SimulateJob>& jobs, const SimulationOptions& how) {
  double seconds = 0;
  for (const SimulateJob& job : jobs) seconds += how.replay ? replay_seconds(job.passes, how.l2_curve) : 0;
  if (seconds < 60) return "";
  return fmt::format("the replay takes {}; --closed-form leaves it out\n", about_seconds(seconds));
}

void print_plan(const std::vector<SimulateJob>& jobs, const SimulationOptions& how,
                const CommandContext& context) {
  double all = 0;
  for (const SimulateJob& job : jobs) {
    const double seconds = how.replay ? replay_seconds(job.passes, how.l2_curve) : 0;
    all += seconds;
    context.print(fmt::format("{} {} on {}: {}, {}\n", job.kernel->name, describe(job.problem),
                              job.machine->name, counted(job.passes.size(), "pass"), about_seconds(seconds)));
  }
  context.print(fmt::format("{}, {}\n", counted(jobs.size(), "run"), about_seconds(all)));
}

int simulate_tuning(const SimulateArguments& arguments, const Machine& machine,
                    const CommandContext& context) {
  if (arguments.sweep.given() || arguments.kernel.tile_given() || arguments.sram_bytes) {
    throw BadInput("--tune-bytes", "given", "must stand without --sweep, --tile and --sram-bytes");
  }
  const SimulationOptions how = simulation_options(arguments, machine);
  RunRecord record = start_record(context.argv);
  const auto [kernels, line] = chosen_kernels(arguments, simulated_problem(arguments), {machine});
  context.print(line);
  for (const Kernel* kernel : kernels) {
    const AttentionProblem problem = arguments.problem.in_type_of({kernel}, simulated_problem(arguments));
    context.print(fmt::format("{}, {}\n{}", kernel->name, describe(problem), machine_line(machine, how)));
    for (const Direction direction : arguments.problem.directions()) {
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

int simulate(const SimulateArguments& arguments, const CommandContext& context) {
  if (!arguments.record.empty()) return simulate_again(arguments, context);
  const std::vector<Direction> directions = arguments.problem.directions();
  arguments.gpus.require_complete();
  if (arguments.gpus.given()) {
    const Progress progress(context, "simulating several GPUs");
    return simulate_distributed(context, simulated_problem(arguments), directions, arguments.gpus.across(),
                                arguments.machine, {arguments.link_rate, arguments.flop_rate});
  }
  if (arguments.flop_rate) throw BadInput("--flop-rate", *arguments.flop_rate, "must stand with --gpus N");
  if (arguments.link_rate) throw BadInput("--link-rate", *arguments.link_rate, "must stand with --gpus N");
  const std::vector<Machine> machines = chosen_machines(arguments);
  if (arguments.tune_bytes) return simulate_tuning(arguments, machines.front(), context);
  const SimulationOptions how = simulation_options(arguments, machines.front());
  const std::optional<PaperTile> paper =
      paper_tile(arguments, simulated_problem(arguments), machines.front());
  if (arguments.shard.given() && !arguments.sweep.given()) {
    throw BadInput("--shard", *arguments.shard.name(), "must stand with --sweep, whose runs it divides");
  }
  Plan plan = plan_jobs(arguments, directions, paper, machines);
  const AttentionProblem first_problem = plan.jobs.front().problem;
  const std::vector<SimulateJob> jobs = own_jobs(std::move(plan.jobs), arguments.shard, how.l2_curve);

  if (arguments.dry_run) {
    print_plan(jobs, how, context);
    return kFine;
  }
  if (!arguments.sweep.given()) context.print(describe(first_problem) + "\n");
  for (const Machine& machine : machines) {
    context.print(machine_line(machine, how) +
                  ceiling_line(with_measured_ceilings(machine), first_problem.dtype));
  }
  if (paper) context.print(paper->remark);
  context.print(plan.default_kernels + warning_lines(jobs, how) + announcement(jobs, how));
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  record.shard = arguments.shard.name();
  for (const SimulateJob& job : jobs) record.runs.push_back(replay(job, how, context));
  if (arguments.sweep.given()) {
    context.print("\n" + simulated_sweep_table(record.runs));
  } else if (jobs.size() == 1 || arguments.detail) {
    print_details(jobs, record.runs, directions, arguments, how, context);
  } else {
    print_comparison(jobs, record.runs, machines, how, context);
  }
  if (const ModelShape* model = arguments.problem.model()) {
    context.print("\n");
    std::string lines;
    for (const RunEntry& run : record.runs) {
      const std::string line = model_line(run, *model, machines.size() > 1);
      if (lines.find(line) == std::string::npos) lines += line;  // formulas are those of any machine
    }
    context.print(lines);
  }
  if (how.replay) record.cost = cost_since(start);
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_simulate_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<SimulateArguments>();
  CLI::App& command =
      add_command(app, context, "simulate", "bytes and FLOPs of a kernel's passes on a machine model",
                  [arguments, &context] { return simulate(*arguments, context); });
  arguments->problem.add_to(command);
  refuse_v_transposed(command);
  arguments->kernel.add_to(command, true);
  arguments->sweep.add_to(command);
  CLI::Option* const record =
      command
          .add_option("--record", arguments->record,
                      "instead of a problem: the runs of a measured record, simulated in their own memory; "
                      "--json gets the simulation alone, which names that record")
          ->type_name("FILE");
  constexpr const char* kGroup = "Machine";
  command
      .add_option(
          "--machine", arguments->machine,
          "a machine's name (tilescope list machines) or a file, or several with commas; default h200")
      ->type_name("MACHINE|FILE.json")
      ->group(kGroup);
  command.add_option("--compare", arguments->compare, "another machine beside it; may be repeated")
      ->type_name("MACHINE|FILE.json")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group(kGroup)
      ->excludes(record);
  command
      .add_option("--l2-bytes", arguments->l2_bytes, "capacity of an LRU cache in place of the machine's L2")
      ->type_name("BYTES")
      ->group(kGroup);
  command
      .add_option(
          "--pages", arguments->pages,
          "where the tensors' pages lie in memory: each tensor in one piece, or every page at a random "
          "place (contiguous)")
      ->type_name("contiguous|random")
      ->group(kGroup)
      ->excludes(record);
  // Its former name.
  command.add_option("--memory", arguments->pages)->group("")->excludes(record)->excludes("--pages");
  command
      .add_option("--ctas-per-sm", arguments->ctas_per_sm,
                  "CTAs that run at once on an SM; default: what shared memory allows")
      ->type_name("N")
      ->group(kGroup);
  command
      .add_option("--sram-bytes", arguments->sram_bytes,
                  "tile by FlashAttention's rule for M of so many bytes; machine: a CTA's shared memory")
      ->type_name("BYTES|machine")
      ->group(kGroup)
      ->excludes("--tile")
      ->excludes("--sweep");
  command.add_flag("--closed-form", arguments->closed_form_only, "formulas alone, no replay")->group(kGroup);
  command.add_flag("--curve", arguments->curve, "also DRAM bytes against L2 size; printed with the details")
      ->group(kGroup);
  command
      .add_flag("--tune-bytes", arguments->tune_bytes,
                "which tiles, orders and scans move least: the Pareto front of SM<->L2 and DRAM bytes")
      ->group(kGroup)
      ->excludes(record);
  command.add_flag("--dry-run", arguments->dry_run, "what would be simulated, and how long it may take");
  command.add_flag("--detail", arguments->detail,
                   "every pass, where several kernels or machines stand side by side");
  arguments->shard.add_to(command, {"--record", "--tune-bytes"}, context.json);
  arguments->gpus.add_to(command, {"--kernel",      "--tile",       "--backward",        "--order",
                                   "--scan",        "--fp8-sums",   "--diagonal-slices", "--sweep",
                                   "--record",      "--compare",    "--l2-bytes",        "--pages",
                                   "--ctas-per-sm", "--sram-bytes", "--closed-form",     "--curve",
                                   "--tune-bytes",  "--dry-run",    "--detail",          "--shard"},
                         false);
  command
      .add_option("--flop-rate", arguments->flop_rate,
                  "TFLOP/s of a GPU's launches, in place of the machine's peak")
      ->type_name("TFLOPS")
      ->group("Several GPUs");
  command
      .add_option("--link-rate", arguments->link_rate,
                  "bytes a second to another GPU, one way, in place of the machine's: 50GB")
      ->type_name("BYTES")
      ->group("Several GPUs");
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
