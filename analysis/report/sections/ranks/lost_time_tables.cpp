// SPDX-License-Identifier: Apache-2.0
// Where the model of ranks says that their time goes: schedules side by side, and what is lost to what, with
// the efficiencies that were measured.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/report/sections/ranks/rank_tables.hpp"

namespace tilescope {
namespace {

/// A problem as GPUs share it: GPUs, shape, tokens a GPU, pass.
using SharedProblem = std::tuple<std::int64_t, std::string, std::int64_t, std::string>;

struct PredictedSchedule {
  const DistributedPass* pass = nullptr;
  std::optional<double> measured;  // efficiency, by the copy engine
};
using PredictedSchedules = std::map<SharedProblem, std::map<std::string, PredictedSchedule>>;

PredictedSchedules predicted_schedules(const std::vector<DistributedRecord>& records) {
  std::map<RankedPassKey, double> measured;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (pass.efficiency && record.transport == "copy-engine")
      measured[ranked_key(run, pass)] = *pass.efficiency;
  });
  PredictedSchedules found;
  for_each_ranked_pass(records, [&](const auto&, const auto& run, const auto& pass) {
    constexpr std::int64_t kMostGpus = 4;  // more are the scaling table's
    if (pass.predicted_lost_s.empty() || !pass.predicted_efficiency || run.gpus > kMostGpus) return;
    const RankedPassKey key = ranked_key(run, pass);
    const SharedProblem problem{run.gpus, std::get<0>(key), std::get<2>(key), pass.name};
    const auto seen = measured.find(key);
    found[problem][run.schedule] = {
        &pass, seen == measured.end() ? std::nullopt : std::optional<double>(seen->second)};
  });
  return found;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Adds a line with the GPUs and the shape where they are other than those of the row before.
void add_title(Table& table, const SharedProblem& problem, std::string& title) {
  const std::string own = fmt::format("{} GPUs, {}", std::get<0>(problem), std::get<1>(problem));
  if (own != title) table.rows.push_back({title = own});
}

constexpr struct {
  const char *cause, *heading;
} kCauses[] = {{"tiles_s", "tiles"},        {"tails_s", "tails"},      {"sums_s", "sums"},
               {"launches_s", "launching"}, {"bytes_s", "link bytes"}, {"latency_s", "link start"},
               {"others_s", "others"}};

}  // namespace

Table predicted_schedules_table(const std::vector<DistributedRecord>& records) {
  const PredictedSchedules problems = predicted_schedules(records);
  std::set<std::string> schedules;
  for (const auto& [problem, of] : problems) {
    for (const auto& [schedule, predicted] : of) schedules.insert(schedule);
  }
  Table table{
      "Efficiency of each schedule as the model predicts it from the rate of one GPU (CTAs on SMs, sums, "
      "launches, links), and in brackets as measured. What a launch, a block and a sum cost was fitted to "
      "16/16 heads on 2 GPUs, and to nothing else here.",
      {{"tokens a GPU", true}, {"pass"}},
      {}};
  for (const std::string& schedule : schedules) table.columns.push_back({schedule, true});
  std::string title;
  for (const auto& [problem, of] : problems) {
    add_title(table, problem, title);
    std::vector<std::string> row = {std::to_string(std::get<2>(problem)), std::get<3>(problem)};
    for (const std::string& schedule : schedules) {
      const auto found = of.find(schedule);
      row.push_back(found == of.end() ? "-" : percent(*found->second.pass->predicted_efficiency));
      if (found != of.end() && found->second.measured)
        row.back() += fmt::format(" ({})", percent(*found->second.measured));
    }
    table.rows.push_back(row);
  }
  return table;
}

Table lost_time_table(const std::vector<DistributedRecord>& records) {
  Table table{
      "Where the model says that the rest goes, of the schedule that it gives most: tiles that are uneven, "
      "or more for being cut; SMs that are done while others compute (tails); merges, additions and "
      "roundings (sums); until kernels begin; bytes on the link, and the start of transfers, with nothing to "
      "compute; waiting for other GPUs. Shares of the time, beyond one GPU's own; below 0: less than its "
      "share.",
      {{"tokens a GPU", true}, {"pass"}, {"schedule"}, {"predicted", true}, {"measured", true}},
      {}};
  for (const auto& cause : kCauses) table.columns.push_back({cause.heading, true});
  std::string title;
  for (const auto& [problem, of] : predicted_schedules(records)) {
    const auto& [schedule, best] = *std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) {
      return *a.second.pass->predicted_efficiency < *b.second.pass->predicted_efficiency;
    });
    add_title(table, problem, title);
    std::vector<std::string> row = {std::to_string(std::get<2>(problem)), std::get<3>(problem), schedule,
                                    percent(*best.pass->predicted_efficiency),
                                    best.measured ? percent(*best.measured) : "-"};
    for (const auto& cause : kCauses) {
      const auto lost = best.pass->predicted_lost_s.find(cause.cause);
      row.push_back(
          lost == best.pass->predicted_lost_s.end() ? "-" : percent(lost->second / *best.pass->predicted_s));
    }
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace tilescope
