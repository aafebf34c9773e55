// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/simulate_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "analysis/cli/tables/text_table.hpp"
#include "analysis/counts/closed_form.hpp"
#include "analysis/counts/direction_total.hpp"
#include "analysis/counts/lower_bounds.hpp"
#include "analysis/counts/roofline.hpp"
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

std::string tile_text(const PassRecord& pass) {
  return fmt::format("{}x{}", pass.tile.block_m, pass.tile.block_n);
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

  std::string text() const {
    std::vector<bool> right(columns_.size() + 1, true);
    right[0] = false;
    return align_columns(rows_, "  ", right);
  }

 private:
  std::vector<PassRecord> columns_;
  std::vector<std::vector<std::string>> rows_;
};

void add_byte_rows(PassColumns& table) {
  using Pass = PassRecord;
  const bool replayed = table.replayed();
  table.add("tile", pass_only(tile_text));
  if (replayed) {
    table.add("CTAs at once",
              pass_only([](const Pass& c) { return fmt::format("{}", c.simulated->co_resident_ctas); }));
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

void add_work_rows(PassColumns& table, const AttentionProblem& problem, const Machine& machine) {
  using Pass = PassRecord;
  const auto reach = [&](const Pass& c) {
    const auto dram = c.simulated ? std::optional(std::llround(dram_bytes(c))) : std::nullopt;
    return roofline({c.flops, std::llround(sm_l2_bytes(c)), dram, exponentials(problem, c.name)},
                    ceilings_of(machine, problem.dtype));
  };
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
    const auto rate = reach(c).attainable_flops_per_second;
    return rate && c.flops > 0 ? format_flops(*rate) + "/s" : std::string("-");
  });
}

}  // namespace

std::string pass_table(const RunEntry& run, Direction direction, const Machine& machine) {
  PassColumns table(run, direction);
  add_byte_rows(table);
  add_work_rows(table, run.problem, machine);
  return table.text();
}

std::string simulated_sweep_table(const std::vector<RunEntry>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"SM<-L2", "SM->L2", "DRAM read", "/ compulsory", "DRAM write", "kernel"}};
  for (const RunEntry& run : runs) {
    const std::string choices = (run.order ? fmt::format(" {}", to_string(*run.order)) : "") +
                                (run.scan ? fmt::format(" {}", to_string(*run.scan)) : "");
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::optional<PassRecord> total = direction_total(run, direction);
      if (!total) continue;
      const ClosedFormBytes& closed = *total->closed_form;
      const std::optional<SimulatedBytes>& simulated = total->simulated;
      const auto last =
          std::find_if(run.passes.rbegin(), run.passes.rend(),
                       [direction](const PassRecord& pass) { return pass.direction == direction; });
      rows.push_back({bytes(closed.sm_l2_read_bytes), bytes(closed.sm_l2_write_bytes),
                      simulated ? bytes(simulated->dram_read_bytes) : "-",
                      simulated ? ratio(static_cast<double>(simulated->dram_read_bytes),
                                        static_cast<double>(closed.compulsory_read_bytes))
                                : "-",
                      simulated ? bytes(simulated->dram_write_bytes) : "-",
                      fmt::format("{} {} {} {}{}", run.kernel, to_string(direction), tile_text(*last),
                                  describe(run.problem), choices)});
    }
  }
  return align_columns(rows, "", std::vector<bool>(5, true));
}

std::string ceiling_line(const Machine& machine, ElementType dtype) {
  std::string text = "ceilings: ";
  const auto found = machine.peak_flops_per_second.find(std::string(to_string(dtype)));
  if (found == machine.peak_flops_per_second.end()) {
    text += fmt::format("no {} products", to_string(dtype));
  } else {
    text +=
        fmt::format("{} {}/s ({})", to_string(dtype), format_flops(found->second.value), found->second.kind);
  }
  if (machine.l2_bytes_per_second) {
    text += fmt::format(", SM<->L2 {}/s ({})", format_bytes(machine.l2_bytes_per_second->value),
                        machine.l2_bytes_per_second->kind);
  }
  return text + fmt::format(", DRAM {}/s ({})\n", format_bytes(machine.dram_bytes_per_second.value),
                            machine.dram_bytes_per_second.kind);
}

std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine) {
  const PassRecord total = direction_total(run, direction).value();
  std::string text;
  const auto add = [&](const char* boundary, std::int64_t read_bytes, const FastMemory& memory) {
    const ReadBound bound = read_bound(run.problem, direction, algorithm, memory);
    const std::string on_chip = format_capacity(memory.processors * memory.bytes_per_processor);
    text += fmt::format("  {} reads: at least {} ", boundary, bytes(bound.bytes()));
    if (bound.score_bound_vacuous()) {
      text += fmt::format("(the inputs, once; the score bound says less: {}, with {} on chip)",
                          bytes(bound.score_bytes), on_chip);
    } else {
      text += fmt::format("(score bound, with {} on chip; the inputs alone: {})", on_chip,
                          bytes(bound.compulsory_bytes));
    }
    text += fmt::format(", this run {}\n",
                        ratio(static_cast<double>(read_bytes), static_cast<double>(bound.bytes())));
  };
  add("SM<->L2", total.closed_form->sm_l2_read_bytes, sm_memory(machine));
  if (total.simulated) add("DRAM", total.simulated->dram_read_bytes, chip_memory(machine));
  return text;
}

std::string curve_table(const RunEntry& run, Direction direction) {
  std::vector<std::vector<std::string>> rows{{"L2 from", "DRAM read", "DRAM written"}};
  ReadWriteBytes last;
  for (const auto& [l2_bytes, dram] : total_l2_curve(run, direction)) {
    if (std::exchange(last, dram) == dram) continue;
    rows.push_back({format_capacity(l2_bytes), bytes(dram.read_bytes), bytes(dram.write_bytes)});
  }
  return align_columns(rows, "  ", {true, true, true});
}

}  // namespace tilescope::cli
