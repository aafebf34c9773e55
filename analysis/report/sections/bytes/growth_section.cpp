// SPDX-License-Identifier: Apache-2.0
// With which power of N the measured bytes and the device memory grow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {

double growth_exponent(std::span<const std::pair<double, double>> points) {
  double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const auto& [x, y] : points) {
    const double lx = std::log(x), ly = std::log(y);
    x_sum += lx;
    y_sum += ly;
    xx_sum += lx * lx;
    xy_sum += lx * ly;
  }
  const double n = static_cast<double>(points.size());
  return (n * xy_sum - x_sum * y_sum) / (n * xx_sum - x_sum * x_sum);
}

namespace {

/// (N, bytes a head) of a sweep's points.
std::vector<std::pair<double, double>> per_head(const std::vector<const RunSummary*>& sweep,
                                                double (*bytes)(const RunSummary&)) {
  std::vector<std::pair<double, double>> points;
  for (const RunSummary* run : sweep) {
    const double heads = static_cast<double>(run->problem().batch * run->problem().heads);
    points.emplace_back(static_cast<double>(run->problem().seqlen_q), bytes(*run) / heads);
  }
  return points;
}

/// "d = 64, MHA, causal": what stays the same, as the batch varies with N.
std::string fixed_text(const RunSummary& run) {
  const AttentionProblem& p = run.problem();
  std::string text =
      fmt::format("d = {}, {}", p.head_dim,
                  p.heads == p.heads_kv ? "MHA" : fmt::format("{} query heads a kv head", p.group_size()));
  if (p.masked())
    text += p.mask.any()   ? ", mask " + describe(p.mask)
            : p.causal     ? ", causal"
            : p.windowed() ? ", window"
                           : ", padding";
  return text;
}

constexpr std::size_t kFewestPoints = 3;

Table seqlen_table(const std::vector<RunSummary>& runs, std::vector<std::string>& commands) {
  constexpr std::int64_t kFewestQueries = 2048;  // below, the terms linear in N still count
  Table table{fmt::format("Exponent of N in the bytes of a head, fitted over N >= {}.",
                          format_length(kFewestQueries)),
              {{"kernel"},
               {"pass"},
               {"problem"},
               {"tile"},
               {"points", true},
               {"SM<->L2, closed form", true},
               {"SM<->L2, measured", true},
               {"DRAM read, measured", true}},
              {}};
  for (std::vector<const RunSummary*> sweep : token_sweeps(runs)) {
    std::erase_if(sweep, [](const RunSummary* run) {
      return run->problem().seqlen_q < kFewestQueries || !run->measured_sm_l2 || !run->measured_dram ||
             !run->closed_form;
    });
    if (sweep.size() < kFewestPoints) continue;
    const RunSummary& last = *sweep.back();
    const double closed = growth_exponent(per_head(sweep, [](const RunSummary& run) {
      return static_cast<double>(run.closed_form->read_bytes + run.closed_form->write_bytes);
    }));
    const double sm_l2 = growth_exponent(per_head(sweep, [](const RunSummary& run) {
      return static_cast<double>(run.measured_sm_l2->read_bytes + run.measured_sm_l2->write_bytes);
    }));
    const double dram = growth_exponent(per_head(
        sweep, [](const RunSummary& run) { return static_cast<double>(run.measured_dram->read_bytes); }));
    table.rows.push_back(
        {last.label, std::string(to_string(last.direction)), fixed_text(last), to_string(last.tile),
         fmt::format("{}, {} ... {}", sweep.size(), format_length(sweep.front()->problem().seqlen_q),
                     format_length(last.problem().seqlen_q)),
         fmt::format("{:.3f}", closed), fmt::format("{:.3f}", sm_l2), fmt::format("{:.2f}", dram)});
    add_command(commands, *last.record);
  }
  return table;
}

/// Exponents of SM<->L2 reads in what varies along measured sweeps.
template <typename Value>
Table read_table(const std::string& caption, const std::vector<Sweep>& sweeps, Value value,
                 std::vector<std::string>& commands) {
  Table table{caption,
              {{"kernel"},
               {"pass"},
               {"problem"},
               {"points"},
               {"closed form", true},
               {"measured", true},
               {"measured, per doubling", true}},
              {}};
  for (const Sweep& sweep : sweeps) {
    for (const SweepSeries& series : sweep.series) {
      std::vector<std::pair<double, double>> closed, measured;
      std::string points;
      for (const RunSummary* run : series.points) {
        if (!run->measured_sm_l2 || !run->closed_form) continue;
        const auto x = static_cast<double>(value(*run));
        closed.emplace_back(x, static_cast<double>(run->closed_form->read_bytes));
        measured.emplace_back(x, static_cast<double>(run->measured_sm_l2->read_bytes));
        points += fmt::format("{}{}", points.empty() ? "" : ", ", value(*run));
      }
      if (measured.size() < kFewestPoints) continue;
      const double slope = growth_exponent(measured);
      table.rows.push_back({series.label, std::string(to_string(sweep.direction)),
                            problem_text(*series.points.back()), points,
                            fmt::format("{:.3f}", growth_exponent(closed)), fmt::format("{:.3f}", slope),
                            format_ratio(std::exp2(slope))});
      add_command(commands, *series.points.back()->record);
    }
  }
  return table;
}

}  // namespace

std::optional<Section> growth_section(const std::vector<RunSummary>& runs) {
  std::vector<std::string> commands;
  Section section{
      "growth",
      with_machines("How the bytes grow with the sequence, the tile and the head", measured_runs(runs)),
      {}};
  for (Table& table : std::vector{
           seqlen_table(runs, commands),
           read_table("Exponent of the tile's side that sets how often the other axis is streamed (rows "
                      "of Q forward, of K and V backward), in SM<->L2 reads.",
                      tile_sweeps(runs), swept_block, commands),
           read_table(
               "Exponent of head_dim in SM<->L2 reads, at one tile side.", head_dim_sweeps(runs),
               [](const RunSummary& run) { return run.problem().head_dim; }, commands)}) {
    if (!table.rows.empty()) section.blocks.push_back(std::move(table));
  }
  if (section.blocks.empty()) return std::nullopt;
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

namespace {

std::optional<std::int64_t> device_bytes(const RunSummary& run) {
  const auto found = run.run->device_bytes.find(std::string(to_string(run.direction)));
  if (found == run.run->device_bytes.end() || found->second <= 0) return std::nullopt;
  return found->second;
}

}  // namespace

std::optional<Section> memory_section(const std::vector<RunSummary>& runs) {
  Table table{
      "Device memory that the tensors of one direction took, as the driver counts it. Exponents are those "
      "of the last doubling of N; inputs and outputs alone would give 1.",
      {{"kernel"},
       {"pass"},
       {"problem"},
       {"N"},
       {"first", true},
       {"last", true},
       {"x inputs and outputs", true},
       {"exponent of N", true}},
      {}};
  std::vector<std::string> commands, machines;
  for (const Sweep& sweep : seqlen_sweeps(runs)) {
    for (const SweepSeries& series : sweep.series) {
      std::vector<const RunSummary*> known;
      std::vector<std::pair<double, double>> points;  // N, bytes
      for (const RunSummary* run : series.points) {
        const auto bytes = device_bytes(*run);
        if (!bytes) continue;
        known.push_back(run);
        points.emplace_back(static_cast<double>(run->problem().seqlen_q), static_cast<double>(*bytes));
      }
      if (points.size() < 2) continue;
      const RunSummary *first = known.front(), *last = known.back();
      const double needed = static_cast<double>(last->compulsory.total());
      table.rows.push_back({series.label, std::string(to_string(sweep.direction)), problem_text(*last, false),
                            fmt::format("{} ... {}", format_length(first->problem().seqlen_q),
                                        format_length(last->problem().seqlen_q)),
                            format_bytes(points.front().second), format_bytes(points.back().second),
                            format_ratio(points.back().second / needed),
                            fmt::format("{:.2f}", growth_exponent({points.end() - 2, points.end()}))});
      add_command(commands, *last->record);
      add_new(machines, last->record->machine.name.value_or("an unknown device"));
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"memory",
                 with_machines("Device memory against sequence length", machines),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
