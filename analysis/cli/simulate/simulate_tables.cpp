// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/lower_bounds.hpp"
#include "analysis/model/counts/roofline.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

double sm_l2_bytes(const PassRecord& pass) {
  return static_cast<double>(pass.closed_form->sm_l2_read_bytes + pass.closed_form->sm_l2_write_bytes);
}
double compulsory(const PassRecord& pass) {
  return static_cast<double>(pass.closed_form->compulsory_read_bytes +
                             pass.closed_form->compulsory_write_bytes);
}
double dram_bytes(const PassRecord& pass) {
  return static_cast<double>(pass.simulated->dram_read_bytes + pass.simulated->dram_write_bytes);
}

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string ratio(double over, double under) { return under > 0 ? format_ratio(over / under) : "-"; }

using Cell = std::function<std::string(const PassRecord&)>;

/// Empty for a total, which has no tile, no residency and no hit rate of its own.
Cell pass_only(const Cell& cell) {
  return [cell](const PassRecord& pass) { return pass.tile == kUnknownTile ? std::string() : cell(pass); };
}

/// A table with a column for each pass of a direction, and one for their total where there are several.
class PassColumns {
 public:
  PassColumns(const RunEntry& run, Direction direction) {
    const PassRecord total = direction_total(run, direction).value();
    for (const PassRecord& pass : run.passes) {
      if (pass.direction == direction) columns_.push_back(pass);
    }
    if (columns_.size() > 1) columns_.push_back(total);
    add("", [&](const PassRecord& c) {
      return c.name == total.name ? std::string(to_string(direction)) : c.name;
    });
  }

  bool replayed() const { return columns_.front().simulated.has_value(); }
  /// Whether DRAM reads of each pass have a range.
  bool random_pages() const { return replayed() && columns_.front().simulated->dram_read_range.has_value(); }

  void add(const std::string& label, const Cell& cell) {
    std::vector<std::string>& row = rows_.emplace_back(1, label);
    for (const PassRecord& column : columns_) row.push_back(cell(column));
  }

  std::string text() const { return fold_columns(rows_, "  ", true); }

 private:
  std::vector<PassRecord> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Those that have a place on an SM, or all that there are.
std::int64_t ctas_at_once(const PassRecord& pass, const std::vector<PlannedPass>& planned) {
  std::int64_t ctas = pass.simulated->co_resident_ctas;
  for (const auto& [direction, program] : planned) {
    if (direction == pass.direction && to_string(program.name) == pass.name)
      ctas = std::min(ctas, program.num_ctas());
  }
  return ctas;
}

void add_byte_rows(PassColumns& table, const std::vector<PlannedPass>& planned) {
  using Pass = PassRecord;
  const bool replayed = table.replayed();
  table.add("tile", pass_only(tile_text));
  if (replayed) {
    table.add("CTAs at once",
              pass_only([&](const Pass& c) { return fmt::format("{}", ctas_at_once(c, planned)); }));
  }
  table.add("SM<->L2 read, closed form",
            [](const Pass& c) { return bytes(c.closed_form->sm_l2_read_bytes); });
  if (replayed) table.add("  simulated", [](const Pass& c) { return bytes(c.simulated->sm_l2_read_bytes); });
  table.add("SM<->L2 written, closed form",
            [](const Pass& c) { return bytes(c.closed_form->sm_l2_write_bytes); });
  if (replayed) {
    table.add("  simulated", [](const Pass& c) { return bytes(c.simulated->sm_l2_write_bytes); });
    table.add("DRAM read, simulated", [](const Pass& c) { return bytes(c.simulated->dram_read_bytes); });
    if (table.random_pages()) {
      table.add("  least ... largest", pass_only([](const Pass& c) {
                  const auto& range = *c.simulated->dram_read_range;
                  return fmt::format("{} ... {}", bytes(range[0]), bytes(range[1]));
                }));
    }
    table.add("DRAM written, simulated", [](const Pass& c) { return bytes(c.simulated->dram_write_bytes); });
    table.add("L2 hit rate",
              pass_only([](const Pass& c) { return fmt::format("{:.2f} %", 100 * c.simulated->hit_rate); }));
  }
  table.add("compulsory read", [](const Pass& c) { return bytes(c.closed_form->compulsory_read_bytes); });
  table.add("compulsory written", [](const Pass& c) { return bytes(c.closed_form->compulsory_write_bytes); });
  table.add("SM<->L2 / compulsory", [](const Pass& c) { return ratio(sm_l2_bytes(c), compulsory(c)); });
  if (replayed) {
    table.add("DRAM / compulsory", [](const Pass& c) { return ratio(dram_bytes(c), compulsory(c)); });
  }
}

constexpr const char* kFootnote =
    "* rests on a ceiling that no document at hand states: its kind is unverified or assumed\n";

std::string with_footnote(std::string text) {
  return text.find('*') == std::string::npos ? text : text + kFootnote;
}

struct Reach {
  std::string limit;
  std::optional<double> least_seconds, attainable;
};

/// What the machine allows a pass, or all of a direction's. A limit that no document states says so.
Reach reach_of(const PassRecord& pass, const AttentionProblem& problem, const Machine& machine) {
  const auto dram = pass.simulated ? std::optional(std::llround(dram_bytes(pass))) : std::nullopt;
  const std::vector<Ceiling> ceilings = ceilings_of(machine, problem.dtype);
  const Roofline roof =
      roofline({pass.flops, std::llround(sm_l2_bytes(pass)), dram, pass.exponentials}, ceilings);
  const bool firm = std::none_of(ceilings.begin(), ceilings.end(), [&roof](const Ceiling& ceiling) {
    return ceiling.name == roof.limit && !ceiling.documented;
  });
  return {roof.limit + (firm ? "" : "*"), roof.least_seconds, roof.attainable_flops_per_second};
}

void add_work_rows(PassColumns& table, const AttentionProblem& problem, const Machine& machine) {
  using Pass = PassRecord;
  const auto reach = [&](const Pass& c) { return reach_of(c, problem, machine); };
  const auto intensity = [](const Pass& c, double bytes) {
    return c.flops == 0 || bytes == 0 ? std::string("-")
                                      : format_number(static_cast<double>(c.flops) / bytes);
  };
  table.add("useful work", [](const Pass& c) { return format_flops(static_cast<double>(c.flops)); });
  table.add("work of visited tiles",
            [](const Pass& c) { return format_flops(static_cast<double>(c.executed_flops)); });
  table.add("FLOP/B at SM<->L2", [&](const Pass& c) { return intensity(c, sm_l2_bytes(c)); });
  if (table.replayed()) {
    table.add("FLOP/B at DRAM", [&](const Pass& c) { return intensity(c, dram_bytes(c)); });
  }
  table.add("limited by", [&](const Pass& c) { return c.flops == 0 ? "bytes alone" : reach(c).limit; });
  table.add("attainable", [&](const Pass& c) {
    const auto rate = reach(c).attainable;
    return rate && c.flops > 0 ? format_flops(*rate) + "/s" : std::string("-");
  });
}

/// Of the pass that moves most.
std::string main_tile(const RunEntry& run, Direction direction) {
  const PassRecord* main = nullptr;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction) continue;
    if (main == nullptr || sm_l2_bytes(pass) > sm_l2_bytes(*main)) main = &pass;
  }
  return tile_text(*main);
}

const std::string& machine_name_of(const RunEntry& run) { return run.passes.front().simulated->machine; }

/// The run's machine; the only one where nothing was replayed.
const Machine& machine_behind(const RunEntry& run, const std::vector<Machine>& machines) {
  for (const Machine& machine : machines) {
    if (run.passes.front().simulated && machine.name == machine_name_of(run)) return machine;
  }
  return machines.front();
}

std::vector<std::string> comparison_row(const RunEntry& run, Direction direction, const PassRecord& total,
                                        const Machine& machine, bool several_machines) {
  const Reach reach = reach_of(total, run.problem, machine);
  std::vector<std::string> row = {
      run_label(run, direction, false), several_machines ? machine.name : main_tile(run, direction),
      bytes(std::llround(sm_l2_bytes(total))), ratio(sm_l2_bytes(total), compulsory(total))};
  row.push_back(total.simulated ? bytes(std::llround(dram_bytes(total))) : "-");
  row.push_back(total.simulated ? ratio(dram_bytes(total), compulsory(total)) : "-");
  row.push_back(reach.least_seconds ? format_seconds(*reach.least_seconds) : "-");
  std::string limit = reach.limit;  // which its column says is one of a rate
  if (const std::size_t word = limit.find(" bandwidth"); word != std::string::npos) limit.erase(word, 10);
  row.push_back(limit);
  return row;
}

}  // namespace

std::string comparison_table(const std::vector<RunEntry>& runs, const std::vector<Machine>& machines) {
  std::string text;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::vector<std::vector<std::string>> rows;
    std::string must_move;
    for (const RunEntry& run : runs) {
      const std::optional<PassRecord> total = direction_total(run, direction);
      if (!total) continue;
      must_move = bytes(std::llround(compulsory(*total)));
      rows.push_back(
          comparison_row(run, direction, *total, machine_behind(run, machines), machines.size() > 1));
    }
    if (rows.empty()) continue;
    rows.insert(rows.begin(), {std::string(to_string(direction)), machines.size() > 1 ? "machine" : "tile",
                               "SM<->L2", "/ must", "DRAM", "/ must", "least time", "limited by"});
    text += fmt::format("\n{} must move {}\n", to_string(direction), must_move) +
            align_told_columns(rows, "  ", {false, false, true, true, true, true, true, false});
  }
  return with_footnote(text);
}

namespace {

/// What of the bytes at SM<->L2 belongs to no tile.
std::string beside_tiles_lines(const RunEntry& run, Direction direction,
                               const std::vector<PlannedPass>& planned) {
  std::string text;
  for (const auto& [planned_direction, program] : planned) {
    if (planned_direction != direction) continue;
    const ClosedFormBytes all = closed_form_bytes(program);
    std::int64_t filled = 0, asked = all.sm_l2_read_bytes, told = all.sm_l2_write_bytes;
    for (const TensorTraffic& tensor : tensor_traffic(program)) {
      filled += tensor.filled_bytes;
      asked -= tensor.load_bytes + tensor.filled_bytes;
      told -= tensor.store_bytes + tensor.reduce_bytes;
    }
    for (const PassRecord& pass : run.passes) {
      if (pass.name != to_string(program.name)) continue;
      if (filled > 0) {
        text += fmt::format(
            "  {}: {} of these reads are zeros beyond tensors and parts of sectors, which "
            "the copy engine's boxes bring\n",
            pass.name, bytes(filled));
      }
      if (asked + told > 0) {
        text += fmt::format("  {}: flags and counters of CTAs take {} of these reads, {} of the writes\n",
                            pass.name, bytes(asked), bytes(told));
      }
    }
  }
  return text;
}

}  // namespace

std::string pass_table(const RunEntry& run, Direction direction, const Machine& machine,
                       const std::vector<PlannedPass>& planned) {
  PassColumns table(run, direction);
  add_byte_rows(table, planned);
  add_work_rows(table, run.problem, machine);
  return with_footnote(table.text() + beside_tiles_lines(run, direction, planned));
}

std::string simulated_sweep_table(const std::vector<RunEntry>& runs) {
  // By kernel and direction, in the order in which they come first.
  std::vector<std::pair<std::string, std::vector<std::vector<std::string>>>> blocks;
  for (const RunEntry& run : runs) {
    const std::string choices = (run.order ? fmt::format(" {}", to_string(*run.order)) : "") +
                                (run.scan ? fmt::format(" {}", to_string(*run.scan)) : "");
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::optional<PassRecord> total = direction_total(run, direction);
      if (!total) continue;
      const bool simulated = total->simulated.has_value();
      const double must = compulsory(*total);
      const std::string heading =
          fmt::format("{}, {}{}", run_label(run, direction, false), to_string(direction), choices) +
          (simulated ? " on " + machine_name_of(run) : "");
      auto block = std::find_if(blocks.begin(), blocks.end(),
                                [&heading](const auto& other) { return other.first == heading; });
      if (block == blocks.end()) {
        blocks.push_back({heading, {{"", "tile", "SM<->L2", "/ must", "DRAM", "/ must", "of it read"}}});
        block = blocks.end() - 1;
      }
      block->second.push_back({describe(run.problem), main_tile(run, direction),
                               bytes(std::llround(sm_l2_bytes(*total))), ratio(sm_l2_bytes(*total), must),
                               simulated ? bytes(std::llround(dram_bytes(*total))) : "-",
                               simulated ? ratio(dram_bytes(*total), must) : "-",
                               simulated ? bytes(total->simulated->dram_read_bytes) : "-"});
    }
  }
  std::string text;
  for (const auto& [heading, rows] : blocks) {
    text += (text.empty() ? "" : "\n") + heading + "\n" +
            align_told_columns(rows, "  ", {false, false, true, true, true, true, true});
  }
  return text;
}

std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine) {
  const PassRecord total = direction_total(run, direction).value();
  std::string text;
  const auto add = [&](const char* boundary, std::int64_t read_bytes, const FastMemory& memory) {
    const ReadBound bound = read_bound(run.problem, direction, algorithm, memory);
    const std::string on_chip = format_capacity(memory.processors * memory.bytes_per_processor);
    const std::string least = bound.score_bound_vacuous()
                                  ? fmt::format("every input once, with {} on chip", on_chip)
                                  : fmt::format("forming the scores with {} on chip (every input once: {})",
                                                on_chip, bytes(bound.compulsory_bytes));
    text += fmt::format("  {} reads: {} the least, {}: {}\n", boundary,
                        ratio(static_cast<double>(read_bytes), static_cast<double>(bound.bytes())),
                        bytes(bound.bytes()), least);
  };
  add("SM<->L2", total.closed_form->sm_l2_read_bytes, sm_memory(machine));
  if (total.simulated) add("DRAM", total.simulated->dram_read_bytes, chip_memory(machine));
  return text;
}

std::string curve_table(const RunEntry& run, Direction direction) {
  std::vector<std::vector<std::string>> rows{{"LRU from", "DRAM read", "DRAM written"}};
  ReadWriteBytes last;
  for (const auto& [l2_bytes, dram] : total_l2_curve(run, direction)) {
    if (std::exchange(last, dram) == dram) continue;
    rows.push_back({format_capacity(l2_bytes), bytes(dram.read_bytes), bytes(dram.write_bytes)});
  }
  return align_columns(rows, "  ", {true, true, true});
}

}  // namespace tilescope::cli
