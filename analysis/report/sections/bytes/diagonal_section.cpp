// SPDX-License-Identifier: Apache-2.0
// What cutting tiles finer where the mask does saves: products at every length, bytes where the edges of
// tiles and mask lie apart.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
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
    auto place = std::find_if(all.begin(), all.end(), same);
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
      "FLOP that are computed for a useful one: tiles that the mask cuts are computed whole (1), or in N x N "
      "parts of which those without a visible entry are left out, as `--diagonal-slices N` asks for. Bytes "
      "at SM<->L2, of as many parts as stand in the last column, change where the edges of tiles and mask "
      "lie apart: slices of K and V (backward of Q and dO) that a CTA sees nothing of are not loaded.",
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
