// SPDX-License-Identifier: Apache-2.0
// With which power of N the measured bytes grow, beside what the theorems say.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "analysis/report_format.hpp"

namespace tilescope {
namespace {

/// Least-squares slope of ln y over ln x.
double exponent(const std::vector<std::pair<double, double>>& points) {
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

/// "B1 H16/2 D64 fp16 causal" without the batch, which varies.
std::string fixed_text(const RunSummary& run) {
  const AttentionProblem& p = run.problem();
  std::string text =
      fmt::format("d = {}, {}", p.head_dim,
                  p.heads == p.heads_kv ? "MHA" : fmt::format("{} query heads a kv head", p.group_size()));
  if (p.masked()) text += p.causal ? ", causal" : ", window";
  return text;
}

}  // namespace

std::optional<Section> growth_section(const std::vector<RunSummary>& runs) {
  constexpr std::int64_t kFewestQueries = 2048;  // below, the terms linear in N still count
  constexpr std::size_t kFewestPoints = 3;
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
  std::vector<std::string> commands;
  for (std::vector<const RunSummary*> sweep : token_sweeps(runs)) {
    std::erase_if(sweep, [](const RunSummary* run) {
      return run->problem().seqlen_q < kFewestQueries || !run->measured_sm_l2 || !run->measured_dram ||
             !run->closed_form;
    });
    if (sweep.size() < kFewestPoints) continue;
    const RunSummary& last = *sweep.back();
    const double closed = exponent(per_head(sweep, [](const RunSummary& run) {
      return static_cast<double>(run.closed_form->read_bytes + run.closed_form->write_bytes);
    }));
    const double sm_l2 = exponent(per_head(sweep, [](const RunSummary& run) {
      return static_cast<double>(run.measured_sm_l2->read_bytes + run.measured_sm_l2->write_bytes);
    }));
    const double dram = exponent(per_head(
        sweep, [](const RunSummary& run) { return static_cast<double>(run.measured_dram->read_bytes); }));
    table.rows.push_back(
        {last.run->kernel, std::string(to_string(last.direction)), fixed_text(last), to_string(last.tile),
         fmt::format("{}, {} ... {}", sweep.size(), format_length(sweep.front()->problem().seqlen_q),
                     format_length(last.problem().seqlen_q)),
         fmt::format("{:.3f}", closed), fmt::format("{:.3f}", sm_l2), fmt::format("{:.2f}", dram)});
    add_command(commands, *last.record);
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"growth",
                 "How the bytes grow with the sequence",
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
