// SPDX-License-Identifier: Apache-2.0
// What `simulate` does in place of one run of each job: --tune-bytes tries choices, --record replays what was
// measured.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/advice/advice.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/measured_bytes.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/number_format.hpp"
#include "common/sha256.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// What was tried: one kernel, one direction, each run with choices of its own.
struct ByteTuning {
  std::vector<RunEntry> front;   // no other run moves less at one boundary and no more at the other
  RunEntry own;                  // the kernel's own choice
  int tried = 0, too_large = 0;  // too large for the shared memory of a CTA
};

struct MovedBytes {
  std::int64_t sm_l2 = 0;
  std::optional<std::int64_t> dram = std::nullopt;  // where it was replayed
};

MovedBytes bytes_of(const RunEntry& run, Direction direction) {
  const PassRecord total = direction_total(run, direction).value();
  MovedBytes bytes{total.closed_form->sm_l2_bytes()};
  if (total.simulated) bytes.dram = total.simulated->dram_bytes();
  return bytes;
}

bool beats(MovedBytes a, MovedBytes b) {
  return a.sm_l2 <= b.sm_l2 && a.dram <= b.dram && (a.sm_l2 < b.sm_l2 || a.dram < b.dram);
}

/// Those that no other beats; of equals the first.
std::vector<RunEntry> pareto_front(const std::vector<RunEntry>& runs, Direction direction) {
  std::vector<RunEntry> front;
  std::vector<MovedBytes> taken;
  for (const RunEntry& run : runs) {
    const MovedBytes own = bytes_of(run, direction);
    const bool beaten = std::ranges::any_of(
        runs, [&](const RunEntry& other) { return beats(bytes_of(other, direction), own); });
    const bool again = std::ranges::any_of(
        taken, [own](MovedBytes other) { return other.sm_l2 == own.sm_l2 && other.dram == own.dram; });
    if (beaten || again) continue;
    front.push_back(run);
    taken.push_back(own);
  }
  std::ranges::sort(front, [direction](const RunEntry& a, const RunEntry& b) {
    return bytes_of(a, direction).sm_l2 < bytes_of(b, direction).sm_l2;
  });
  return front;
}

Row tuning_row(const RunEntry& run, Direction direction, const std::string& what) {
  const PassRecord total = direction_total(run, direction).value();
  const auto must = static_cast<double>(total.closed_form->compulsory_bytes());
  const MovedBytes bytes = bytes_of(run, direction);
  const auto ratio = [must](std::int64_t count) { return as_ratio(static_cast<double>(count), must); };
  const PassRecord& main = main_pass(run, direction);
  return {what,
          fmt::format("{}x{}", main.tile.block_m, main.tile.block_n),
          to_string(run.order.value_or(TileOrder::row_major)),
          to_string(run.scan.value_or(Scan::ascending)),
          in_bytes(bytes.sm_l2),
          ratio(bytes.sm_l2),
          bytes.dram ? in_bytes(*bytes.dram) : Cell("-"),
          bytes.dram ? ratio(*bytes.dram) : Cell("-")};
}

/// The options that choose a run, to be typed again.
std::string options_text(const RunEntry& run) {
  const PassRecord& main = main_pass(run, run.passes.front().direction);
  return fmt::format("--tile {}x{} --order {} --scan {}", main.tile.block_m, main.tile.block_n,
                     to_string(run.order.value_or(TileOrder::row_major)),
                     to_string(run.scan.value_or(Scan::ascending)));
}

std::string winners_text(const std::vector<RunEntry>& front, bool replayed) {
  const std::string first = options_text(front.front());
  const auto line = [](const std::string& sentence) { return "  " + wrapped(sentence, "    "); };
  if (!replayed) return line("least SM<->L2: " + first);
  if (front.size() == 1) return line("least at both boundaries: " + first);
  return line("least SM<->L2: " + first) + line("least DRAM: " + options_text(front.back()));
}

/// @throws BadInput where the kernel refuses the problem
ByteTuning try_choices(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& own, const Machine& machine, const SimulationOptions& how,
                       const CommandContext& context) {
  ByteTuning tuning;
  std::vector<SimulateJob> jobs;
  for (const ProgramOptions& options : choices_of(kernel, problem, direction, own)) {
    SimulateJob job = plan_job(kernel, problem, options, {direction}, machine);
    if (jobs.empty() || fits(kernel, job.passes, machine)) {
      jobs.push_back(std::move(job));
    } else {
      ++tuning.too_large;
    }
  }
  tuning.tried = static_cast<int>(jobs.size());
  SimulationOptions quick = how;
  quick.l2_curve = false;  // of one L2
  context.print(announcement(jobs, quick, true));
  std::vector<RunEntry> runs(jobs.size());
  Progress progress(context, fmt::format("tuning {}", kernel.name), tuning.tried);
  simulate_side_by_side(jobs.size(), progress, [&](std::size_t i) {
    runs[i] = simulate_run(kernel, problem, jobs[i].passes, machine, quick);
  });
  tuning.own = runs.front();
  tuning.front = pareto_front(runs, direction);
  return tuning;
}

/// Where the tiles can be had that a kernel keeps for the tuner.
std::string where_tiles_are(const Kernel& kernel, const ByteTuning& tuning) {
  if (!kernel.on_gpu() || !find_gpu_kernel(kernel.name).tiles_of_tuner) return "";
  const bool others = std::ranges::any_of(tuning.front, [&tuning](const RunEntry& run) {
    const Direction direction = run.passes.front().direction;
    return !(main_pass(run, direction).tile == main_pass(tuning.own, direction).tile);
  });
  return others ? "  " + wrapped("tiles other than its own are in builds with -D TILESCOPE_TUNER=ON alone",
                                 "    ")
                : "";
}

/// The front, fewest bytes at SM<->L2 first, and how far the kernel's own choice is from it.
Output tuning_text(const Kernel& kernel, const ByteTuning& tuning, Direction direction) {
  Table table{.rows = {{"choice", "tile", "CTAs", "tiles", "SM<->L2", "x must", "DRAM", "x must"}},
              .indent = "  ",
              .title = fmt::format("\n{}", to_string(direction)),
              .keys = {{"kernel", std::string(kernel.name)}, {"direction", to_string(direction)}}};
  for (const RunEntry& run : tuning.front) table.rows.push_back(tuning_row(run, direction, "Pareto front"));
  table.rows.push_back(tuning_row(tuning.own, direction, "own choice"));
  const MovedBytes own = bytes_of(tuning.own, direction);
  const bool on_front = std::ranges::any_of(tuning.front, [&](const RunEntry& run) {
    const MovedBytes bytes = bytes_of(run, direction);
    return bytes.sm_l2 == own.sm_l2 && bytes.dram == own.dram;
  });
  const std::string text = fmt::format(
      "  {} choices {}{}\n  {}\n", tuning.tried, own.dram ? "replayed" : "counted by formula",
      tuning.too_large == 0 ? "" : fmt::format(", {} too large for a CTA's shared memory", tuning.too_large),
      on_front ? "the kernel's own choice is on the Pareto front"
               : "another choice moves less than the kernel's own");
  return Output(table) +
         Output(text + winners_text(tuning.front, own.dram.has_value()) + where_tiles_are(kernel, tuning));
}

}  // namespace

int tune_bytes(const SimulateArguments& arguments, const Machine& machine, const CommandContext& context) {
  if (arguments.sweep.given() || arguments.kernel.tile_given() || arguments.sram_bytes) {
    throw BadInput("--tune-bytes", "given", "must stand without --sweep, --tile and --sram-bytes");
  }
  const SimulationOptions how = arguments.simulation_options({machine});
  const std::vector<Direction> directions = arguments.problem.directions();
  RunRecord record = start_record(context.argv);
  const auto [kernels, line] = chosen_kernels(arguments, arguments.simulated_problem(), {machine});
  context.print(line);
  for (const Kernel* kernel : kernels) {
    const AttentionProblem problem = arguments.problem.in_type_of({kernel}, arguments.simulated_problem());
    context.print(fmt::format("{}, {}\n{}", kernel->name, describe(problem), machine_line(machine, how)));
    for (const Direction direction : directions) {
      const ByteTuning tuning =
          try_choices(*kernel, problem, direction, arguments.kernel.program_options(*kernel, problem),
                      machine, how, context);
      context.print(tuning_text(*kernel, tuning, direction));
      record.runs.insert(record.runs.end(), tuning.front.begin(), tuning.front.end());
    }
  }
  context.write_json(to_json_text(record));
  return kFine;
}

namespace {

/// Measured and simulated DRAM bytes of a pass, where both are there.
std::optional<Row> measured_row(const RunEntry& run, const PassRecord& pass) {
  if (!pass.measured || !pass.measured->dram_read_bytes || !pass.simulated) return std::nullopt;
  const std::int64_t measured = *pass.measured->dram_read_bytes;
  const double ratio = static_cast<double>(pass.simulated->dram_read_bytes) / static_cast<double>(measured);
  const char* placement = run.pages == PagePlacement::random ? " random pages" : "";
  return {{run.kernel, pass.name, describe(run.problem) + placement, in_bytes(measured),
           in_bytes(pass.simulated->dram_read_bytes),
           as_number(fmt::format("{:+.1f} %", 100 * (ratio - 1)), ratio - 1)}};
}

void print_bytes(const std::vector<RunEntry>& runs, const std::string& source,
                 const CommandContext& context) {
  std::string warnings;
  std::vector<Row> rows = {{"kernel", "pass", "DRAM reads of", "measured", "simulated", "off by"}};
  for (const RunEntry& run : runs) {
    for (const PassRecord& pass : run.passes) {
      if (auto row = measured_row(run, pass)) rows.push_back(std::move(*row));
      if (const auto why = too_few_reads(run, pass)) warnings += wrapped("warning: " + *why);
    }
  }
  context.print(
      rows.size() > 1
          ? Output(Table{rows})
          : wrapped(fmt::format("{}: no pass has DRAM reads both measured and simulated: nothing to compare",
                                source)));
  context.print(warnings);
}

/// Measured and predicted times of each direction.
void print_times(const std::vector<RunEntry>& measured, const std::vector<RunEntry>& predicted,
                 const std::string& source, const CommandContext& context) {
  std::vector<Row> rows = {{"kernel", "direction", "time of", "measured", "predicted", "off by"}};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const auto timed = direction_total(measured[i], direction);
      const auto model = direction_total(predicted[i], direction);
      if (!timed || !model->predicted) continue;
      const double was = timed->time->median_s, said = model->predicted->seconds;
      rows.push_back({measured[i].kernel, to_string(direction), describe(measured[i].problem),
                      as_number(format_seconds(was), was, "s"), as_number(format_seconds(said), said, "s"),
                      as_number(fmt::format("{:+.1f} %", 100 * (said / was - 1)), said / was - 1)});
    }
  }
  context.print(rows.size() > 1
                    ? Output(Table{rows})
                    : wrapped(fmt::format("{}: no run has a predicted time: bounds only", source)));
}

/// A record of this simulation. The measured record stays as it is.
RunRecord simulation_record(const RunRecord& measured, const Machine& machine, const std::string& text,
                            const SimulateArguments& arguments, const CommandContext& context) {
  RunRecord record = start_record(context.argv);
  record.simulation_of = measured.simulation_of.value_or(
      SimulationSource{arguments.record, measured.argv, measured.when, measured.git, {}});
  SimulationSource& source = *record.simulation_of;
  source.machine_file = arguments.one_machine("--record");
  source.machine_sha256 = sha256(to_json_text(machine));
  source.model_sha256 = model_sha256();
  if (!measured.simulation_of) source.record_sha256 = sha256(text);
  for (const RunEntry& run : measured.runs) record.runs.push_back(without_measurements(run));
  return record;
}

}  // namespace

int simulate_record(const SimulateArguments& arguments, const CommandContext& context) {
  std::error_code ignored;
  if (std::filesystem::equivalent(arguments.record, context.json, ignored)) {
    throw BadInput("--json", context.json, "must be another file than the record, which does not change");
  }
  const Machine machine = load_machine(arguments.one_machine("--record"));
  const std::string text = read_text_file(arguments.record);
  RunRecord record = parse_run_record(arguments.record, text);
  const bool apart = std::ranges::all_of(record.runs, only_timed);
  if (apart)
    std::erase_if(record.runs, [](const RunEntry& run) { return !run.algorithm; });  // other libraries'
  for (const RunEntry& run : record.runs) find_kernel(run.kernel);                   // before any is replayed
  const std::vector<RunEntry> measured = record.runs;
  {
    Progress progress(context, "replaying " + arguments.record,
                      static_cast<std::int64_t>(record.runs.size()));
    simulate_side_by_side(record.runs.size(), progress, [&](std::size_t i) {
      RunEntry& run = record.runs[i];
      const SimulationOptions how{.replay = !arguments.closed_form_only};
      run = (apart ? simulate_apart : simulate_again)(run, find_kernel(run.kernel), machine, how);
    });
  }
  if (apart) {
    print_times(measured, record.runs, arguments.record, context);
  } else {
    print_bytes(record.runs, arguments.record, context);
  }
  context.write_json(to_json_text(simulation_record(record, machine, text, arguments, context)));
  return kFine;
}

}  // namespace tilescope::cli
