// SPDX-License-Identifier: Apache-2.0
// simulate --advise: the choices that are predicted to be done first.
#include <fmt/format.h>

#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/advice/advice.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

const PassRecord& advised_pass(const RunEntry& run, Direction direction) {
  const PassRecord* main = nullptr;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction == direction && (main == nullptr || pass.flops > main->flops)) main = &pass;
  }
  return *main;
}

/// The choices of a run, each behind its word: "--tile ", " --order "; or behind a blank.
std::string advised_choice(const RunEntry& run, Direction direction, bool typed) {
  const PassRecord& main = advised_pass(run, direction);
  const auto word = [typed](const char* option) { return typed ? option : " "; };
  std::string text =
      fmt::format("{}{}x{}{}{}{}{}", typed ? "--tile " : "", main.tile.block_m, main.tile.block_n,
                  word(" --order "), to_string(run.order.value_or(TileOrder::row_major)), word(" --scan "),
                  to_string(run.scan.value_or(Scan::ascending)));
  if (typed && main.choices.backward)
    text += fmt::format(" --backward {}", to_string(*main.choices.backward));
  if (main.choices.query_splits)
    text += fmt::format("{}{}", typed ? " --query-splits " : " query splits ", *main.choices.query_splits);
  return text;
}

Row advice_row(const std::string& rank, const RunEntry& run, Direction direction, const Machine& machine) {
  const PassRecord total = direction_total(run, direction).value();
  const double bound = bound_seconds(run, direction, machine);
  const auto& predicted = total.predicted;
  const auto dram = total.simulated ? std::optional(total.simulated->dram_bytes()) : std::nullopt;
  return {rank,
          advised_choice(run, direction, false),
          in_bytes(total.closed_form->sm_l2_bytes()),
          dram ? in_bytes(*dram) : Cell("-"),
          as_number(format_seconds(bound), bound, "s"),
          predicted ? as_number(format_seconds(predicted->seconds), predicted->seconds, "s")
                    : Cell("bound only")};
}

std::string kv_line(const AttentionProblem& problem, std::int64_t kept_bytes) {
  const KvInL2 kv = kv_in_l2(problem, kept_bytes);
  const std::string fit = kv.heads_that_fit() == kv.heads
                              ? "all fit"
                              : fmt::format("{} of {} fit", kv.heads_that_fit(), kv.heads);
  return wrapped(
      fmt::format("K and V take {} a key/value head, {} in all; the L2 keeps {} of what is streamed: {}",
                  in_bytes(kv.head_bytes).text, in_bytes(kv.heads * kv.head_bytes).text,
                  in_bytes(kv.kept_bytes).text, fit));
}

Output advice_table(const std::string& kernel, const Advice& advice, Direction direction,
                    const Machine& machine) {
  Table table{.rows = {{"", "choice", "SM<->L2", "DRAM", "time bound", "predicted"}},
              .indent = "  ",
              .title = fmt::format("\n{}", to_string(direction)),
              .keys = {{"kernel", kernel}, {"direction", to_string(direction)}}};
  constexpr const char* kRanks[] = {"best", "runner-up"};
  for (std::size_t i = 0; i < advice.best.size(); ++i) {
    table.rows.push_back(advice_row(kRanks[i], advice.best[i], direction, machine));
  }
  table.rows.push_back(advice_row("its own", advice.own, direction, machine));
  const RunEntry& best = advice.best.front();
  std::string ranked = "time bound: how this kernel's warps work is not known";
  std::string advised = "best: " + advised_choice(best, direction, true);
  if (advice.predicted) {
    const PredictedTime time = direction_total(advice.own, direction).value().predicted.value();
    ranked = fmt::format("predicted time (nine of ten times on an H200 lay within {:.2f}x ... {:.2f}x)",
                         time.interval[0] / time.seconds, time.interval[1] / time.seconds);
    if (format_seconds(direction_total(best, direction)->predicted->seconds) == format_seconds(time.seconds))
      advised = "nothing to gain: the kernel's own choice is predicted to be done as soon";
  }
  const std::string tried =
      fmt::format("{} of {} choices replayed, ranked by {}", advice.replayed, advice.tried, ranked);
  return Output(table) + Output("  " + wrapped(tried, "    ") + "  " + wrapped(advised, "    "));
}

}  // namespace

int advise_choices(const SimulateArguments& arguments, const Machine& machine,
                   const CommandContext& context) {
  if (arguments.sweep.given() || arguments.kernel.tile_given() || arguments.sram_bytes)
    throw BadInput("--advise", "given", "must stand without --sweep, --tile and --sram-bytes");
  const SimulationOptions how = arguments.simulation_options({machine});
  RunRecord record = start_record(context.argv);
  const auto [kernels, line] = chosen_kernels(arguments, arguments.simulated_problem(), {machine});
  context.print(line);
  for (const Kernel* kernel : kernels) {
    const AttentionProblem problem = arguments.problem.in_type_of({kernel}, arguments.simulated_problem());
    context.print(fmt::format("{}, {}\n{}", kernel->name, describe(problem), machine_line(machine, how)) +
                  kv_line(problem, how.l2_bytes.value_or(machine.l2_effective_bytes.value)));
    for (const Direction direction : arguments.problem.directions()) {
      const Progress progress(context, fmt::format("trying choices of {}", kernel->name));
      const Advice advice =
          advise(*kernel, problem, direction, arguments.kernel.program_options(*kernel, problem), machine,
                 how, [&context](double core_seconds, std::size_t count) {
                   context.print(announcement(core_seconds, count));
                 });
      context.print(advice_table(std::string(kernel->name), advice, direction, machine));
      record.runs.insert(record.runs.end(), advice.best.begin(), advice.best.end());
      record.runs.push_back(advice.own);
    }
  }
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace tilescope::cli
