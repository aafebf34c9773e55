// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/run_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/model/counts/direction_total.hpp"

namespace tilescope {
namespace {

/// " fused": what a label names the backward order by, if the algorithm has several. That kv tiles come in
/// order is a choice beside it.
std::string order_label(const std::vector<const PassRecord*>& passes) {
  for (const PassRecord* pass : passes) {
    const std::optional<BackwardOrder> order = pass->choices.backward;
    if (order)
      return fmt::format(" {}", to_string(*order == BackwardOrder::ordered ? BackwardOrder::fused : *order));
  }
  return "";
}

std::optional<ReadWriteBytes> both(std::optional<std::int64_t> read, std::optional<std::int64_t> write) {
  if (!read || !write) return std::nullopt;
  return ReadWriteBytes{*read, *write};
}

void set_totals(RunSummary& summary, const PassRecord& total) {
  summary.useful_flops = total.flops;
  summary.executed_flops = total.executed_flops;
  summary.exponentials = total.exponentials;
  summary.compulsory = compulsory_bytes(summary.problem(), summary.direction);
  if (const auto& closed = total.closed_form) {
    summary.closed_form = {closed->sm_l2_read_bytes, closed->sm_l2_write_bytes};
  }
  if (const auto& simulated = total.simulated) {
    summary.simulated_sm_l2 = {simulated->sm_l2_read_bytes, simulated->sm_l2_write_bytes};
    summary.simulated_dram = {simulated->dram_read_bytes, simulated->dram_write_bytes};
  }
  if (const auto& measured = total.measured) {
    summary.measured_sm_l2 = both(measured->sm_l2_read_bytes, measured->sm_l2_write_bytes);
    summary.measured_dram = both(measured->dram_read_bytes, measured->dram_write_bytes);
  }
  if (total.time) summary.median_seconds = total.time->median_s;
}

/// What only one of the passes can tell.
void set_tile_and_machine(RunSummary& summary) {
  std::int64_t most = -1;
  for (const PassRecord* pass : summary.passes) {
    const std::int64_t bytes = pass->closed_form ? pass->closed_form->sm_l2_bytes() : 0;
    if (bytes > most) {
      most = bytes;
      summary.tile = pass->tile;
    }
    if (pass->simulated && summary.machine_model.empty()) summary.machine_model = pass->simulated->machine;
  }
}

/// What the instructions of a direction's passes leave open: a warp's multiply-add on CUDA cores is 64 FLOP,
/// 128 of packed halves, and one on tensor cores is thousands, of which little is left only where other
/// instructions are many more.
std::optional<bool> cuda_cores_by_instructions(const RunSummary& summary) {
  constexpr double kFlopOfWarp = 64, kFlopOfPackedHalves = 128;
  double instructions = 0;
  for (const PassRecord* pass : summary.passes) {
    const auto counted = pass->counters.find("smsp__inst_executed.sum");
    if (counted == pass->counters.end()) return std::nullopt;
    instructions += std::visit([](auto value) { return static_cast<double>(value); }, counted->second);
  }
  const double flop = static_cast<double>(summary.executed_flops) / instructions;
  if (flop > kFlopOfPackedHalves) return false;
  return flop <= kFlopOfWarp && flop > 0 ? std::optional(true) : std::nullopt;
}

std::optional<bool> on_cuda_cores(const RunSummary& summary) {
  const RunEntry& run = *summary.run;
  if (run.runs_on != "gpu") return std::nullopt;
  if (run.math_unit) return run.math_unit == MathUnit::cuda_cores;
  if (run.problem.dtype == ElementType::fp32) return true;  // no tensor core multiplies that
  return cuda_cores_by_instructions(summary);
}

std::int64_t diagonal_slices(const std::vector<const PassRecord*>& passes) {
  std::int64_t most = 1;
  for (const PassRecord* pass : passes) most = std::max(most, pass->choices.diagonal_slices.value_or(1));
  return most;
}

std::vector<const PassRecord*> passes_of(const RunEntry& run, Direction direction) {
  std::vector<const PassRecord*> passes;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction == direction) passes.push_back(&pass);
  }
  return passes;
}

/// "longest-first, random pages": what a run was told to do otherwise than its kernel would.
std::string choices_of(const RunEntry& run, const std::vector<const PassRecord*>& passes, bool orders) {
  std::vector<std::string> choices;
  if (orders && run.order && *run.order != TileOrder::row_major) choices.emplace_back(to_string(*run.order));
  if (orders && run.scan && *run.scan != Scan::ascending) choices.emplace_back(to_string(*run.scan));
  if (const std::int64_t slices = diagonal_slices(passes); slices > 1)
    choices.push_back(fmt::format("{} diagonal slices", slices));
  if (const auto& splits = passes.front()->choices.splits) choices.push_back("splits " + to_string(*splits));
  if (passes.front()->choices.pack_gqa) choices.emplace_back("packed heads");
  for (const PassRecord* pass : passes) {
    if (const auto& splits = pass->choices.query_splits)
      choices.push_back(fmt::format("{} query splits", *splits));
  }
  if (const auto& sums = passes.front()->choices.fp8_sums) choices.push_back(*sums + " sums");
  if (const auto& variant = passes.front()->choices.variant) choices.push_back(*variant);
  if (std::any_of(passes.begin(), passes.end(),
                  [](const PassRecord* pass) { return pass->choices.backward == BackwardOrder::ordered; })) {
    choices.emplace_back("ordered");
  }
  if (orders && run.pages == PagePlacement::random) choices.emplace_back("random pages");
  return fmt::format("{}", fmt::join(choices, ", "));
}

/// `verify` counts the bytes of its many small cases too; they are of no interest to a report on bytes.
bool only_judged(const RunEntry& run) {
  return !run.error.empty() && std::none_of(run.passes.begin(), run.passes.end(), [](const PassRecord& pass) {
    return pass.simulated || pass.measured || pass.time;
  });
}

/// Nor are runs of which only the steps were timed.
bool only_progress(const RunEntry& run) {
  return std::all_of(run.passes.begin(), run.passes.end(),
                     [](const PassRecord& pass) { return pass.progress && !pass.closed_form; });
}

/// Options that say where something is written, which is not what it says.
bool is_output(std::string_view option) {
  return option == "--json" || option == "--out" || option == "--csv" || option == "--plot";
}

}  // namespace

std::optional<Machine> machine_of(const RunSummary& run) {
  if (run.machine_model.empty()) return std::nullopt;
  try {
    return load_machine(run.machine_model);
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

std::string to_string(TileShape tile) {
  if (tile == kUnknownTile) return "-";
  return fmt::format("{}x{}", tile.block_m, tile.block_n);
}

std::string tile_text(const PassRecord& pass) {
  const std::int64_t slices = pass.choices.diagonal_slices.value_or(1);
  return to_string(pass.tile) + (slices > 1 ? fmt::format(" in {0}x{0}", slices) : "");
}

std::string command_text(const std::vector<std::string>& argv) {
  // The launcher in place of the program; anything else, a Python interpreter, by its own name.
  const bool program = argv.empty() || argv.front().ends_with("tilescope");
  std::string text = program ? "./tilescope" : argv.front();
  bool own = true;  // what follows -- belongs to another command
  for (std::size_t i = 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    own = own && word != "--";
    if (own && is_output(word)) {
      ++i;
      continue;
    }
    if (own && (word == "--quiet" || is_output(word.substr(0, word.find('='))))) continue;
    const bool plain = word.find_first_of(" \t\n\"'$`\\*?<>|&;()") == std::string::npos && !word.empty();
    text += plain ? fmt::format(" {}", word) : fmt::format(" '{}'", word);
  }
  return text;
}

std::string problem_text(const RunSummary& run, bool with_seqlen) {
  AttentionProblem problem = run.problem();
  problem.seed = 0;
  std::string text = describe(problem);
  if (with_seqlen) return text;
  const std::size_t start = text.find(" N"), dim = text.find(" D");
  return text.erase(start, dim - start);
}

std::string run_label(const RunEntry& run, Direction direction, bool orders) {
  const std::vector<const PassRecord*> passes = passes_of(run, direction);
  std::string label = run.runs_on == "cpu" ? run.kernel.substr(run.kernel.find(':') + 1) : run.kernel;
  if (direction == Direction::backward) label += order_label(passes);
  const std::string choices = choices_of(run, passes, orders);
  return choices.empty() ? label : label + " (" + choices + ")";
}

std::vector<RunSummary> summarize(const std::vector<RunRecord>& records) {
  std::vector<RunSummary> summaries;
  for (const RunRecord& record : records) {
    for (const RunEntry& run : record.runs) {
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        RunSummary summary;
        summary.record = &record;
        summary.run = &run;
        summary.direction = direction;
        summary.passes = passes_of(run, direction);
        if (summary.passes.empty() || only_judged(run) || only_progress(run)) continue;
        summary.label = run_label(run, direction);
        summary.diagonal_slices = diagonal_slices(summary.passes);
        summary.algorithm = run.algorithm;
        set_totals(summary, *direction_total(run, direction));
        set_tile_and_machine(summary);
        summary.on_cuda_cores = on_cuda_cores(summary);
        summaries.push_back(std::move(summary));
      }
    }
  }
  return summaries;
}

}  // namespace tilescope
