// SPDX-License-Identifier: Apache-2.0
// What passes compute, and what that costs at shared memory, by counters.
#include <fmt/format.h>

#include <map>
#include <set>

#include "analysis/model/counts/pass_metrics.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

using Metrics = std::map<std::string, double>;

/// Sum of a metric over the passes of a run; nothing where one of them lacks it.
std::optional<double> total(const std::vector<Metrics>& passes, const char* name) {
  double sum = 0;
  for (const Metrics& metrics : passes) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) return std::nullopt;
    sum += found->second;
  }
  return sum;
}

/// Operations of one product of N x N x head_dim over the visible pairs of every head.
double product_flops(const RunSummary& run) {
  return static_cast<double>(useful_flops(run.problem(), Direction::forward)) / 2;
}

std::string cell(const std::optional<double>& value, std::string (*format)(double)) {
  return value ? format(*value) : "-";
}

}  // namespace

std::optional<Section> work_section(const std::vector<RunSummary>& runs) {
  Table table{
      "Operations that counters saw, in products of N x N x head_dim over the visible pairs of all heads, "
      "and bytes at shared memory. The papers count 2 products forward and 5 backward. Multiply-adds "
      "outside the tensor cores count two; in fp32 they hold the products too.",
      {{"kernel"},
       {"pass"},
       {"problem"},
       {"tile"},
       {"products on tensor cores", true},
       {"in its program", true},
       {"fp32 operations, in products", true},
       {"a score, beside the products", true},
       {"read from shared memory", true},
       {"written to it", true},
       {"wavefronts", true},
       {"time", true}},
      {}};
  std::vector<std::string> commands;
  std::set<std::string> seen;
  for (const RunSummary& run : runs) {
    std::vector<Metrics> passes;
    for (const PassRecord* pass : run.passes) passes.push_back(pass_metrics(*pass));
    const auto fp16 = total(passes, "tensor_fp16_ops"), bf16 = total(passes, "tensor_bf16_ops");
    const auto fp32 = total(passes, "fp32_ops");
    const auto loads = total(passes, "shared_load_bytes"), stores = total(passes, "shared_store_bytes");
    if (!fp16 && !fp32 && !loads) continue;
    // A sweep over backward orders measures the same forward again.
    if (!seen.insert(run.label + to_string(run.tile) + problem_text(run)).second) continue;
    const double product = product_flops(run);
    const double scores = product / (2 * static_cast<double>(run.problem().head_dim));
    const auto in_products = [product](double flops) { return fmt::format("{:.2f}", flops / product); };
    table.rows.push_back(
        {run.label, std::string(to_string(run.direction)), problem_text(run), to_string(run.tile),
         fp16 ? in_products(*fp16 + bf16.value_or(0)) : "-",
         in_products(static_cast<double>(run.executed_flops)), fp32 ? in_products(*fp32) : "-",
         fp32 && !fp16 ? fmt::format("{:.2f}", (*fp32 - static_cast<double>(run.executed_flops)) / scores)
                       : "-",
         cell(loads, format_bytes), cell(stores, format_bytes),
         cell(total(passes, "shared_wavefronts"), format_count),
         run.median_seconds ? format_seconds(*run.median_seconds) : "-"});
    add_command(commands, *run.record);
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{"work",
                 with_machines("What is computed, by counters", measured_runs(runs)),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
