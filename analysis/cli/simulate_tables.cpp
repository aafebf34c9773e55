// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "analysis/cli/text_table.hpp"
#include "analysis/closed_form.hpp"
#include "analysis/lower_bounds.hpp"
#include "analysis/report_format.hpp"
#include "analysis/roofline.hpp"

namespace tilescope::cli {
namespace {

/// A pass, or the sum of a direction's passes.
struct Column {
  std::string title, tile;
  std::int64_t useful_flops = 0, executed_flops = 0, exponentials = 0;
  ClosedFormBytes closed;
  std::optional<SimulatedBytes> simulated;

  double sm_l2_bytes() const {
    return static_cast<double>(closed.sm_l2_read_bytes + closed.sm_l2_write_bytes);
  }
  double compulsory() const {
    return static_cast<double>(closed.compulsory_read_bytes + closed.compulsory_write_bytes);
  }
  double dram_bytes() const {
    return static_cast<double>(simulated->dram_read_bytes + simulated->dram_write_bytes);
  }
};

std::vector<Column> pass_columns(const RunEntry& run, Direction direction) {
  std::vector<Column> columns;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction) continue;
    columns.push_back({pass.name, fmt::format("{}x{}", pass.tile.block_m, pass.tile.block_n), pass.flops,
                       pass.executed_flops, exponentials(run.problem, pass.name), *pass.closed_form,
                       pass.simulated});
  }
  return columns;
}

/// The sum of the passes; its compulsory bytes and useful FLOPs are those of the direction, which needs
/// neither what its passes hand each other nor what they compute twice.
Column sum_of(const std::vector<Column>& passes, const AttentionProblem& problem, Direction direction) {
  Column sum;
  sum.title = std::string(to_string(direction));
  const ReadWriteBytes needed = compulsory_bytes(problem, direction);
  sum.closed.compulsory_read_bytes = needed.read_bytes;
  sum.closed.compulsory_write_bytes = needed.write_bytes;
  sum.useful_flops = useful_flops(problem, direction);
  for (const Column& pass : passes) {
    sum.executed_flops += pass.executed_flops;
    sum.exponentials += pass.exponentials;
    sum.closed.sm_l2_read_bytes += pass.closed.sm_l2_read_bytes;
    sum.closed.sm_l2_write_bytes += pass.closed.sm_l2_write_bytes;
    if (!pass.simulated) continue;
    if (!sum.simulated) sum.simulated = SimulatedBytes{};
    sum.simulated->sm_l2_read_bytes += pass.simulated->sm_l2_read_bytes;
    sum.simulated->sm_l2_write_bytes += pass.simulated->sm_l2_write_bytes;
    sum.simulated->dram_read_bytes += pass.simulated->dram_read_bytes;
    sum.simulated->dram_write_bytes += pass.simulated->dram_write_bytes;
  }
  return sum;
}

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string ratio(double over, double under) { return under > 0 ? format_ratio(over / under) : "-"; }

}  // namespace

std::string pass_table(const RunEntry& run, Direction direction, const Machine& machine) {
  std::vector<Column> columns = pass_columns(run, direction);
  const Column sum = sum_of(columns, run.problem, direction);
  const std::size_t passes = columns.size();
  if (passes == 1) columns[0].title = sum.title;
  if (passes > 1) columns.push_back(sum);
  const bool replayed = columns.front().simulated.has_value();

  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& label, const std::function<std::string(const Column&)>& cell) {
    std::vector<std::string> row{label};
    for (const Column& column : columns) row.push_back(cell(column));
    rows.push_back(std::move(row));
  };
  // The sum has no tile, no residency and no hit rate of its own.
  const auto pass_only = [&](const std::function<std::string(const Column&)>& cell) {
    return [cell](const Column& column) { return column.tile.empty() ? std::string() : cell(column); };
  };
  const auto reach = [&](const Column& c) {
    const auto dram = c.simulated ? std::optional(std::llround(c.dram_bytes())) : std::nullopt;
    return roofline({c.useful_flops, std::llround(c.sm_l2_bytes()), dram, c.exponentials},
                    ceilings_of(machine, run.problem.dtype));
  };
  const auto intensity = [](const Column& c, double bytes) {
    return c.useful_flops == 0 || bytes == 0 ? std::string("-")
                                             : format_number(static_cast<double>(c.useful_flops) / bytes);
  };
  add("", [](const Column& c) { return c.title; });
  add("tile", [](const Column& c) { return c.tile; });
  if (replayed) {
    add("CTAs at once",
        pass_only([](const Column& c) { return fmt::format("{}", c.simulated->co_resident_ctas); }));
  }
  add("SM<->L2 read, closed form", [](const Column& c) { return bytes(c.closed.sm_l2_read_bytes); });
  if (replayed) add("  simulated", [](const Column& c) { return bytes(c.simulated->sm_l2_read_bytes); });
  add("SM<->L2 written, closed form", [](const Column& c) { return bytes(c.closed.sm_l2_write_bytes); });
  if (replayed) add("  simulated", [](const Column& c) { return bytes(c.simulated->sm_l2_write_bytes); });
  if (replayed) {
    add("DRAM read, simulated", [](const Column& c) { return bytes(c.simulated->dram_read_bytes); });
    add("DRAM written, simulated", [](const Column& c) { return bytes(c.simulated->dram_write_bytes); });
    add("L2 hit rate",
        pass_only([](const Column& c) { return fmt::format("{:.2f} %", 100 * c.simulated->hit_rate); }));
  }
  add("compulsory read", [](const Column& c) { return bytes(c.closed.compulsory_read_bytes); });
  add("compulsory written", [](const Column& c) { return bytes(c.closed.compulsory_write_bytes); });
  add("SM<->L2 / compulsory", [](const Column& c) { return ratio(c.sm_l2_bytes(), c.compulsory()); });
  if (replayed)
    add("DRAM / compulsory", [](const Column& c) { return ratio(c.dram_bytes(), c.compulsory()); });
  add("useful work", [](const Column& c) { return format_flops(static_cast<double>(c.useful_flops)); });
  add("work of visited tiles",
      [](const Column& c) { return format_flops(static_cast<double>(c.executed_flops)); });
  add("FLOP/B at SM<->L2", [&](const Column& c) { return intensity(c, c.sm_l2_bytes()); });
  if (replayed) add("FLOP/B at DRAM", [&](const Column& c) { return intensity(c, c.dram_bytes()); });
  add("limited by", [&](const Column& c) { return c.useful_flops == 0 ? "bytes alone" : reach(c).limit; });
  add("attainable", [&](const Column& c) {
    const auto rate = reach(c).attainable_flops_per_second;
    return rate && c.useful_flops > 0 ? format_flops(*rate) + "/s" : std::string("-");
  });
  std::vector<bool> right(columns.size() + 1, true);
  right[0] = false;
  return align_columns(rows, "  ", right);
}

std::string simulated_sweep_table(const std::vector<RunEntry>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"SM<-L2", "SM->L2", "DRAM read", "/ compulsory", "DRAM write", "kernel"}};
  for (const RunEntry& run : runs) {
    const std::string choices = (run.order ? fmt::format(" {}", to_string(*run.order)) : "") +
                                (run.scan ? fmt::format(" {}", to_string(*run.scan)) : "");
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::vector<Column> passes = pass_columns(run, direction);
      if (passes.empty()) continue;
      const Column sum = sum_of(passes, run.problem, direction);
      const auto dram = [&sum](std::int64_t SimulatedBytes::*member) {
        return sum.simulated ? bytes((*sum.simulated).*member) : "-";
      };
      rows.push_back({bytes(sum.closed.sm_l2_read_bytes), bytes(sum.closed.sm_l2_write_bytes),
                      dram(&SimulatedBytes::dram_read_bytes),
                      sum.simulated ? ratio(static_cast<double>(sum.simulated->dram_read_bytes),
                                            static_cast<double>(sum.closed.compulsory_read_bytes))
                                    : "-",
                      dram(&SimulatedBytes::dram_write_bytes),
                      fmt::format("{} {} {} {}{}", run.kernel, to_string(direction), passes.back().tile,
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
  const Column sum = sum_of(pass_columns(run, direction), run.problem, direction);
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
  add("SM<->L2", sum.closed.sm_l2_read_bytes, sm_memory(machine));
  if (sum.simulated) add("DRAM", sum.simulated->dram_read_bytes, chip_memory(machine));
  return text;
}

std::string curve_table(const RunEntry& run, Direction direction) {
  // Curves of different passes end at different sizes; past its end a curve stays at its last value.
  std::map<std::int64_t, ReadWriteBytes> total;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction || !pass.simulated) continue;
    for (const L2CurvePoint& point : pass.simulated->l2_curve) total[point.l2_bytes];
  }
  for (auto& [l2_bytes, dram] : total) {
    for (const PassRecord& pass : run.passes) {
      if (pass.direction != direction || !pass.simulated) continue;
      const std::vector<L2CurvePoint>& curve = pass.simulated->l2_curve;
      const auto above = std::upper_bound(
          curve.begin(), curve.end(), l2_bytes,
          [](std::int64_t size, const L2CurvePoint& point) { return size < point.l2_bytes; });
      dram.read_bytes += std::prev(above)->dram_read_bytes;
      dram.write_bytes += std::prev(above)->dram_write_bytes;
    }
  }
  std::vector<std::vector<std::string>> rows{{"L2 from", "DRAM read", "DRAM written"}};
  ReadWriteBytes last;
  for (const auto& [l2_bytes, dram] : total) {
    if (std::exchange(last, dram) == dram) continue;
    rows.push_back({format_capacity(l2_bytes), bytes(dram.read_bytes), bytes(dram.write_bytes)});
  }
  return align_columns(rows, "  ", {true, true, true});
}

}  // namespace tilescope::cli
