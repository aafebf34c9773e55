// SPDX-License-Identifier: Apache-2.0
// What passes compute: operations that counters saw, and what finer tiles on the diagonal save of them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/model/counts/measured_bytes.hpp"
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

namespace {

/// One problem on one kernel, by the number of slices.
struct CutRuns {
  std::string kernel, direction, problem, tile;
  std::map<std::int64_t, const RunSummary*> by_slices;
};

std::vector<CutRuns> by_problem(const std::vector<RunSummary>& runs) {
  std::vector<CutRuns> all;
  for (const RunSummary& run : runs) {
    const CutRuns key{std::string(run.run->kernel),
                      std::string(to_string(run.direction)),
                      problem_text(run),
                      to_string(run.tile),
                      {}};
    const auto same = [&](const CutRuns& other) {
      return std::tie(other.kernel, other.direction, other.problem, other.tile) ==
             std::tie(key.kernel, key.direction, key.problem, key.tile);
    };
    auto place = std::ranges::find_if(all, same);
    if (place == all.end()) place = all.insert(all.end(), key);
    place->by_slices.emplace(run.diagonal_slices, &run);
  }
  std::erase_if(all, [](const CutRuns& cut) { return cut.by_slices.size() < 2; });
  return all;
}

std::string computed_for_a_useful_one(const RunSummary& run) {
  return fmt::format("{:.3f}",
                     static_cast<double>(run.executed_flops) / static_cast<double>(run.useful_flops));
}

/// "-2.31 %"
std::string bytes_against(const RunSummary& whole, const RunSummary& cut) {
  if (!whole.closed_form || !cut.closed_form) return "-";
  const auto total = [](const RunSummary& run) { return static_cast<double>(run.closed_form->total()); };
  return fmt::format("{:+.2f} %", 100 * (total(cut) / total(whole) - 1));
}

}  // namespace

std::optional<Section> diagonal_section(const std::vector<RunSummary>& runs) {
  const std::vector<CutRuns> all = by_problem(runs);
  if (all.empty()) return std::nullopt;
  std::set<std::int64_t> slices;
  for (const CutRuns& cut : all) {
    for (const auto& [count, run] : cut.by_slices) slices.insert(count);
  }
  Table table{
      "Computed FLOP per useful FLOP, by the number N of parts (`--diagonal-slices N`): a tile that the mask "
      "cuts is computed whole (1), or as those of its N x N parts that hold a visible entry. The last column "
      "compares SM<->L2 bytes with the most parts to those with whole tiles: they differ where the edges of "
      "tiles and mask lie apart, because slices of K and V (backward: of Q and dO) without a visible entry "
      "are not loaded.",
      {{"kernel"}, {"pass"}, {"problem"}, {"tile"}},
      {}};
  for (const std::int64_t count : slices) table.columns.push_back({std::to_string(count), true});
  table.columns.push_back({"SM<->L2", true});
  std::vector<std::string> commands;
  for (const CutRuns& cut : all) {
    std::vector<std::string> row = {cut.kernel, cut.direction, cut.problem, cut.tile};
    for (const std::int64_t count : slices) {
      const auto found = cut.by_slices.find(count);
      row.push_back(found == cut.by_slices.end() ? "-" : computed_for_a_useful_one(*found->second));
    }
    row.push_back(bytes_against(*cut.by_slices.begin()->second, *cut.by_slices.rbegin()->second));
    table.rows.push_back(std::move(row));
    add_command(commands, *cut.by_slices.begin()->second->record);
  }
  return Section{"diagonal",
                 "What finer parts on the diagonal save",
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
