// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/roofline.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

double sm_l2_bytes(const PassRecord& pass) { return static_cast<double>(pass.closed_form->sm_l2_bytes()); }
double must_move(const PassRecord& pass) { return static_cast<double>(pass.closed_form->compulsory_bytes()); }
double dram_bytes(const PassRecord& pass) { return static_cast<double>(pass.simulated->dram_bytes()); }

/// "240 MB ... 285 MB"
Cell interval_text(const std::array<std::int64_t, 2>& interval) {
  return fmt::format("{} ... {}", format_bytes(static_cast<double>(interval[0])),
                     format_bytes(static_cast<double>(interval[1])));
}

using CellOf = std::function<Cell(const PassRecord&)>;

/// Empty for a total, which has no tile, no residency and no hit rate of its own.
CellOf pass_only(const CellOf& cell) {
  return [cell](const PassRecord& pass) { return pass.tile == kUnknownTile ? Cell("") : cell(pass); };
}

/// A table with a row for each pass of a direction, and one for their total where there are several; as text
/// it is turned.
class PassRows {
 public:
  PassRows(const RunEntry& run, Direction direction, std::string machine)
      : run_(run), direction_(direction), machine_(std::move(machine)), rows_(1) {
    const PassRecord total = direction_total(run, direction).value();
    for (const PassRecord& pass : run.passes) {
      if (pass.direction == direction) passes_.push_back(pass);
    }
    // What must move is the problem's; a pass among others must move what its tiles touch.
    if (passes_.size() == 1) passes_.front().closed_form = total.closed_form;
    if (passes_.size() > 1) passes_.push_back(total);
    rows_.resize(1 + passes_.size());
    add("pass", [&](const PassRecord& pass) {
      return Cell(pass.name == total.name ? to_string(direction) : std::string_view(pass.name));
    });
  }

  bool replayed() const { return passes_.front().simulated.has_value(); }
  /// Whether DRAM reads of each pass have a range.
  bool random_pages() const { return replayed() && passes_.front().simulated->dram_read_range.has_value(); }

  bool has_intervals() const {
    return replayed() && passes_.front().simulated->dram_read_interval.has_value();
  }

  void add(const std::string& heading, const CellOf& cell) {
    rows_[0].emplace_back(heading);
    for (std::size_t i = 0; i < passes_.size(); ++i) rows_[1 + i].push_back(cell(passes_[i]));
  }

  Table table() const {
    return {.rows = rows_,
            .indent = "  ",
            .title = fmt::format("\n{}, {} on {}", run_.kernel, to_string(direction_), machine_),
            .keys = {{"kernel", run_.kernel},
                     {"direction", to_string(direction_)},
                     {"machine", machine_},
                     {"problem", as_problem(run_.problem)}},
            .layout = Table::Layout::turned};
  }

 private:
  const RunEntry& run_;
  Direction direction_;
  std::string machine_;
  std::vector<PassRecord> passes_;
  std::vector<Row> rows_;
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

void add_byte_rows(PassRows& table, const std::vector<PlannedPass>& planned) {
  using Pass = PassRecord;
  const bool replayed = table.replayed();
  table.add("tile", pass_only([](const Pass& c) { return Cell(tile_text(c)); }));
  if (replayed) {
    table.add("CTAs at once", pass_only([&](const Pass& c) { return as_count(ctas_at_once(c, planned)); }));
  }
  const auto closed = [](std::int64_t ClosedFormBytes::*bytes) {
    return [bytes](const Pass& c) { return in_bytes((*c.closed_form).*bytes); };
  };
  const auto simulated = [](std::int64_t SimulatedBytes::*bytes) {
    return [bytes](const Pass& c) { return in_bytes((*c.simulated).*bytes); };
  };
  table.add("SM<->L2 read, closed form", closed(&ClosedFormBytes::sm_l2_read_bytes));
  if (replayed) table.add("SM<->L2 read, simulated", simulated(&SimulatedBytes::sm_l2_read_bytes));
  table.add("SM<->L2 written, closed form", closed(&ClosedFormBytes::sm_l2_write_bytes));
  if (replayed) {
    table.add("SM<->L2 written, simulated", simulated(&SimulatedBytes::sm_l2_write_bytes));
    table.add("DRAM read, simulated", simulated(&SimulatedBytes::dram_read_bytes));
    for (const std::size_t end : {0, 1}) {
      if (!table.random_pages()) break;
      table.add(end == 0 ? "DRAM read, least" : "DRAM read, most",
                pass_only([end](const Pass& c) { return in_bytes((*c.simulated->dram_read_range)[end]); }));
    }
    if (table.has_intervals()) {
      table.add("DRAM read, 90 % within",
                [](const Pass& c) { return interval_text(*c.simulated->dram_read_interval); });
    }
    table.add("DRAM written, simulated", simulated(&SimulatedBytes::dram_write_bytes));
    if (table.has_intervals()) {
      table.add("DRAM written, 90 % within",
                [](const Pass& c) { return interval_text(*c.simulated->dram_write_interval); });
    }
    table.add("L2 hit rate", pass_only([](const Pass& c) { return as_percent(c.simulated->hit_rate, 2); }));
  }
  table.add("must read", closed(&ClosedFormBytes::compulsory_read_bytes));
  table.add("must write", closed(&ClosedFormBytes::compulsory_write_bytes));
  table.add("SM<->L2 x must", [](const Pass& c) { return as_ratio(sm_l2_bytes(c), must_move(c)); });
  if (replayed) {
    table.add("DRAM x must", [](const Pass& c) { return as_ratio(dram_bytes(c), must_move(c)); });
  }
}

/// The ceilings of a machine that a pass, or all of a direction's, meets.
struct Reach {
  std::string limit;  // and what of it no document states, or what is not known
  std::optional<double> bound_seconds, attainable;
  bool complete =
      true;  // otherwise a rate is not known, and another machine's bound may be the larger for that

  Cell bound() const {
    if (!bound_seconds) return "-";
    return as_number((complete ? "" : ">") + format_seconds(*bound_seconds), *bound_seconds, "s");
  }
};

/// "; no L2 rate": what the pass does that the machine has no rate for.
std::string unknown_rates(const KernelWork& work, const std::vector<Ceiling>& ceilings, ElementType dtype) {
  std::string unknown;
  for (const auto& [kind, name] : {std::pair(CeilingKind::peak, fmt::format("{} peak", to_string(dtype))),
                                   {CeilingKind::sm_l2, "L2 rate"},
                                   {CeilingKind::exponentials, "rate of exponentials"}}) {
    if (work.amount(kind).value_or(0) > 0 && find(ceilings, kind) == nullptr) unknown += "; no " + name;
  }
  return unknown;
}

KernelWork work_of(const PassRecord& pass) {
  const auto dram = pass.simulated ? std::optional(std::llround(dram_bytes(pass))) : std::nullopt;
  return {pass.flops, std::llround(sm_l2_bytes(pass)), dram, pass.exponentials};
}

ElementType product_type(const RunEntry& run) { return product_type(run.problem.dtype, run.math_unit); }

/// @param type  in which the pass multiplies
Reach reach_of(const PassRecord& pass, ElementType type, const Machine& machine) {
  const std::vector<Ceiling> ceilings = ceilings_of(machine, type);
  const KernelWork work = work_of(pass);
  const Roofline roof = roofline(work, ceilings);
  std::string limit = roof.limit;  // which its column says is one of a rate
  if (const std::size_t word = limit.find(" bandwidth"); word != std::string::npos) limit.erase(word, 10);
  for (const Ceiling& ceiling : ceilings) {
    if (ceiling.name == roof.limit && !ceiling.documented) limit += " (" + ceiling.evidence + ")";
  }
  const std::string unknown = unknown_rates(work, ceilings, type);
  return {limit + unknown, roof.least_seconds, roof.attainable_flops_per_second, unknown.empty()};
}

/// The predicted time, beside which the bound is the least possible.
Cell predicted(const PassRecord& pass) {
  if (!pass.predicted) return "bound only";
  return as_number(format_seconds(pass.predicted->seconds), pass.predicted->seconds, "s");
}

/// Where nine of ten measured times should lie.
Cell predicted_interval(const PassRecord& pass) {
  if (!pass.predicted) return "-";
  return fmt::format("{} ... {}", format_seconds(pass.predicted->interval[0]),
                     format_seconds(pass.predicted->interval[1]));
}

void add_work_rows(PassRows& table, const RunEntry& run, const Machine& machine) {
  using Pass = PassRecord;
  const auto reach = [&](const Pass& c) { return reach_of(c, product_type(run), machine); };
  const auto intensity = [](const Pass& c, double bytes) {
    const double flops_per_byte = static_cast<double>(c.flops) / bytes;
    return c.flops == 0 || bytes == 0 ? Cell("-")
                                      : as_number(format_number(flops_per_byte), flops_per_byte, "FLOP/B");
  };
  table.add("useful work", [](const Pass& c) { return in_flops(static_cast<double>(c.flops)); });
  table.add("work of visited tiles",
            [](const Pass& c) { return in_flops(static_cast<double>(c.executed_flops)); });
  table.add("FLOP/B at SM<->L2", [&](const Pass& c) { return intensity(c, sm_l2_bytes(c)); });
  if (table.replayed()) {
    table.add("FLOP/B at DRAM", [&](const Pass& c) { return intensity(c, dram_bytes(c)); });
  }
  table.add("time bound", [&](const Pass& c) { return reach(c).bound(); });
  table.add("limited by", [&](const Pass& c) { return Cell(reach(c).limit); });
  table.add("predicted", predicted);
  table.add("90 % within", predicted_interval);
  table.add("attainable", [&](const Pass& c) {
    const auto rate = reach(c).attainable;
    return rate && c.flops > 0 ? in_flops_per_second(*rate) : Cell("-");
  });
}

std::string main_tile(const RunEntry& run, Direction direction) {
  return tile_text(main_pass(run, direction));
}

const std::string& machine_name_of(const RunEntry& run) { return run.passes.front().simulated->machine; }

/// "; 8/132 SMs" where a pass with products has fewer CTAs than the machine has SMs.
std::string idle_sms(const SimulateJob& job, Direction direction) {
  std::int64_t fewest = job.machine->sm_count.value;
  for (const auto& [planned_direction, program] : job.passes) {
    if (planned_direction == direction && program.products.count() > 0)
      fewest = std::min(fewest, program.num_ctas());
  }
  if (fewest == job.machine->sm_count.value) return "";
  return fmt::format("; {}/{} SMs", fewest, job.machine->sm_count.value);
}

/// Adds bytes at both boundaries, and what they are of those that must move.
void add_byte_cells(Row& row, const PassRecord& total) {
  const double must = must_move(total);
  row.insert(row.end(), {in_bytes(sm_l2_bytes(total)), as_ratio(sm_l2_bytes(total), must)});
  if (!total.simulated) return row.resize(row.size() + 2, "-");
  row.insert(row.end(), {in_bytes(dram_bytes(total)), as_ratio(dram_bytes(total), must)});
}

Row comparison_row(const RunEntry& run, Direction direction, const PassRecord& total, const SimulateJob& job,
                   bool several_machines) {
  const Reach reach = reach_of(total, product_type(run), with_measured_ceilings(*job.machine));
  Row row = {run_label(run, direction, false),
             several_machines ? job.machine->name : main_tile(run, direction)};
  add_byte_cells(row, total);
  row.insert(row.end(), {reach.bound(), reach.limit + idle_sms(job, direction)});
  return row;
}

}  // namespace

const PassRecord& main_pass(const RunEntry& run, Direction direction) {
  return *std::ranges::max_element(run.passes, {}, [direction](const PassRecord& pass) {
    return pass.direction == direction ? sm_l2_bytes(pass) : -1.0;
  });
}

Output comparison_table(const std::vector<RunEntry>& runs, const std::vector<SimulateJob>& jobs) {
  Output output;
  const bool several_machines = std::ranges::any_of(
      jobs, [&jobs](const SimulateJob& job) { return job.machine->name != jobs.front().machine->name; });
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    Table table{.rows = {{"kernel", several_machines ? "machine" : "tile", "SM<->L2", "x must", "DRAM",
                          "x must", "time bound", "limited by"}},
                .indent = "  "};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::optional<PassRecord> total = direction_total(runs[i], direction);
      if (!total) continue;
      const Cell must = in_bytes(must_move(*total));
      table.title = fmt::format("\n{} must move {}", to_string(direction), must.text);
      table.keys = {
          {"problem", as_problem(runs[i].problem)}, {"direction", to_string(direction)}, {"must move", must}};
      table.rows.push_back(comparison_row(runs[i], direction, *total, jobs[i], several_machines));
    }
    if (table.rows.size() > 1) output += table;
    output += Output(predicted_line(runs, direction, jobs, several_machines) +
                     dram_interval_line(runs, direction, jobs, several_machines));
  }
  return output;
}

Output pass_table(const RunEntry& run, Direction direction, const Machine& machine,
                  const std::vector<PlannedPass>& planned) {
  PassRows table(run, direction, machine.name);
  add_byte_rows(table, planned);
  add_work_rows(table, run, machine);
  return table.table() + Output(beside_tiles_lines(run, direction, planned));
}

Output simulated_sweep_table(const std::vector<RunEntry>& runs) {
  std::vector<Table> blocks;  // by kernel and direction, in the order in which they come first
  for (const RunEntry& run : runs) {
    const std::string choices = (run.order ? fmt::format(" {}", to_string(*run.order)) : "") +
                                (run.scan ? fmt::format(" {}", to_string(*run.scan)) : "");
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::optional<PassRecord> total = direction_total(run, direction);
      if (!total) continue;
      const bool simulated = total->simulated.has_value();
      const std::string kernel = run_label(run, direction, false);
      const std::string title = fmt::format("\n{}, {}{}", kernel, to_string(direction), choices) +
                                (simulated ? " on " + machine_name_of(run) : "");
      auto block = std::ranges::find(blocks, title, &Table::title);
      if (block == blocks.end()) {
        blocks.push_back(
            {.rows = {{"problem", "tile", "must move", "SM<->L2", "x must", "DRAM", "x must", "DRAM read"}},
             .indent = "  ",
             .title = title,
             .keys = {{"kernel", kernel},
                      {"direction", to_string(direction)},
                      {"choices", choices.substr(choices.empty() ? 0 : 1)},
                      {"machine", simulated ? machine_name_of(run) : "-"}}});
        block = blocks.end() - 1;
      }
      Row& row = block->rows.emplace_back(
          Row{as_problem(run.problem), main_tile(run, direction), in_bytes(must_move(*total))});
      add_byte_cells(row, *total);
      row.push_back(simulated ? in_bytes(total->simulated->dram_read_bytes) : Cell("-"));
    }
  }
  Output output;
  for (const Table& block : blocks) output += block;
  return output;
}

}  // namespace tilescope::cli
