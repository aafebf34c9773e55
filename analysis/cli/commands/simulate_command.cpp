// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate`: bytes and FLOPs of a kernel's passes on a machine model, by formula and by replay.
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/cli/tables/simulate_tables.hpp"
#include "analysis/counts/closed_form.hpp"
#include "analysis/replay/simulate_record.hpp"
#include "analysis/replay/simulate_run.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

struct SimulateArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  SweepAxes sweep;
  std::string machine = "h200";
  std::string pages = "contiguous";
  std::optional<std::string> l2_bytes, ctas_per_sm, sram_bytes;
  std::string record;
  bool closed_form_only = false;
  bool curve = false;
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
                                      : parse_integer_in("sram-bytes", *arguments.sram_bytes, 1, kMost);
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

/// Passes whose tiles, as counted, do not fit the shared memory of one CTA.
std::string fit_remarks(const std::vector<PlannedPass>& passes, const Machine& machine) {
  std::string text;
  for (const PlannedPass& pass : passes) {
    const std::int64_t needed = pass.program.shared_bytes();
    if (machine.fits(needed)) continue;
    text += fmt::format(
        "  {}: one buffer a loaded tile, two a streamed one, make {} where a CTA of {} can have {}; "
        "replayed with one CTA an SM\n",
        to_string(pass.program.name), format_capacity(needed), machine.name,
        format_capacity(machine.shared_bytes_per_cta.value));
  }
  return text;
}

RunEntry replay(const Kernel& kernel, const AttentionProblem& problem, const std::vector<PlannedPass>& passes,
                const Machine& machine, SimulationOptions options, const CommandContext& context) {
  constexpr std::int64_t kSteps = 200;
  std::int64_t ctas = 0, retired = 0;
  for (const PlannedPass& pass : passes) ctas += pass.program.num_ctas();
  Progress progress(context, fmt::format("replaying {}", kernel.name), kSteps);
  options.on_retired = [&] {
    const std::int64_t before = retired * kSteps / ctas;
    ++retired;
    for (std::int64_t step = before; step < retired * kSteps / ctas; ++step) progress.step();
  };
  return simulate_run(kernel, problem, passes, machine, options);
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

/// One kernel on one problem, planned before anything is replayed: all are refused or none.
struct Job {
  const Kernel* kernel;
  AttentionProblem problem;
  std::vector<PlannedPass> passes;
};

std::vector<Job> plan_jobs(const SimulateArguments& arguments, const std::vector<Direction>& directions,
                           const std::optional<PaperTile>& paper, const Machine& machine) {
  std::vector<Job> jobs;
  for (const SweepPoint& point : arguments.sweep.points(arguments.problem.problem())) {
    for (const Kernel* kernel : arguments.kernel.kernels({"cpu:flash2"})) {
      ProgramOptions options = point.apply_to(arguments.kernel.program_options(*kernel, point.problem));
      if (paper) options.set_tile(paper->tile);
      for (const Direction direction : directions) {
        require_supported(*kernel, point.problem, direction, options);
        useful_flops(point.problem, direction);  // refuses what overflows, as below
      }
      jobs.push_back(
          {kernel, point.problem, plan_passes(*kernel, point.problem, directions, options, machine)});
      for (const PlannedPass& pass : jobs.back().passes) executed_flops(pass.program);
    }
  }
  return jobs;
}

void print_run(const Job& job, const RunEntry& run, const std::vector<Direction>& directions,
               const SimulateArguments& arguments, const SimulationOptions& how, const Machine& machine,
               const CommandContext& context) {
  for (const Direction direction : directions) {
    context.print(fmt::format("\n{}, {}\n{}{}", run.kernel, to_string(direction),
                              pass_table(run, direction, machine),
                              bound_lines(run, direction, job.kernel->algorithm, machine)));
    if (arguments.curve && how.replay) context.print(curve_table(run, direction));
  }
  if (how.replay && !how.ctas_per_sm) context.print(fit_remarks(job.passes, machine));
}

int simulate(const SimulateArguments& arguments, const CommandContext& context) {
  if (!arguments.record.empty()) return simulate_again(arguments, context);
  const AttentionProblem problem = arguments.problem.problem();
  const std::vector<Direction> directions = arguments.problem.directions();
  const Machine machine = load_machine(arguments.machine);
  SimulationOptions how;
  if (const auto& text = arguments.l2_bytes) {
    how.l2_bytes = parse_integer_in("l2-bytes", *text, 0, std::int64_t{1} << 50);
  }
  if (const auto& text = arguments.ctas_per_sm) {
    how.ctas_per_sm = parse_integer_in("ctas-per-sm", *text, 1, machine.ctas_per_sm.value);
  }
  how.replay = !arguments.closed_form_only;
  how.l2_curve = arguments.curve;
  how.pages = parse_page_placement(arguments.pages);
  const std::optional<PaperTile> paper = paper_tile(arguments, problem, machine);
  const std::vector<Job> jobs = plan_jobs(arguments, directions, paper, machine);

  if (!arguments.sweep.given()) context.print(describe(problem) + "\n");
  context.print(machine_line(machine, how) + ceiling_line(machine, problem.dtype));
  if (paper) context.print(paper->remark);
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  for (const Job& job : jobs) {
    record.runs.push_back(replay(*job.kernel, job.problem, job.passes, machine, how, context));
    if (!arguments.sweep.given()) {
      print_run(job, record.runs.back(), directions, arguments, how, machine, context);
    }
  }
  if (arguments.sweep.given()) context.print("\n" + simulated_sweep_table(record.runs));
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
      .add_option("--machine", arguments->machine,
                  "a machine's name (tilescope list machines) or a file; default h200")
      ->type_name("NAME|FILE.json")
      ->group(kGroup);
  command
      .add_option("--l2-bytes", arguments->l2_bytes, "capacity of an LRU cache in place of the machine's L2")
      ->type_name("N")
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
      ->type_name("N|machine")
      ->group(kGroup)
      ->excludes("--tile")
      ->excludes("--sweep");
  command.add_flag("--closed-form", arguments->closed_form_only, "formulas alone, no replay")->group(kGroup);
  command.add_flag("--curve", arguments->curve, "also DRAM bytes against L2 size")->group(kGroup);
}

}  // namespace tilescope::cli
