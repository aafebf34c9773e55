// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/record_kinds.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

Json run_json(const RunEntry& run) {
  Json json{{"kernel", run.kernel}};
  if (!without_problem(run)) json["problem"] = describe(run.problem);
  if (run.pages == PagePlacement::random) json["pages"] = to_string(run.pages);
  return json;
}

Json runs_json(const std::vector<const RunEntry*>& runs) {
  Json json = Json::array();
  for (const RunEntry* run : runs) json.push_back(run_json(*run));
  return json;
}

}  // namespace

RunRecord comparable_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const bool kernels = require_kind(source, json, {kRunSchema, kKernelsSchema}) == kKernelsSchema;
  return kernels ? runs_of(parse_kernel_record(source, text)) : parse_run_record(source, text);
}

std::string where_in_words(const RunEntry& run, const std::string& where) {
  return without_problem(run) ? "all launches" : where;
}

std::string to_json_text(const RecordDiff& diff) {
  Json runs = Json::array();
  for (const RunChange& run : diff.common) {
    Json entry = run_json(*run.now);
    entry["gone"] = Json::array();
    for (const GoneMetric& gone : run.gone) entry["gone"].push_back(gone.name() + ": " + gone.reason);
    entry["new"] = Json::array();
    for (const GoneMetric& fresh : run.fresh) entry["new"].push_back(fresh.name());
    entry["changes"] = Json::array();
    for (const MetricChange& change : run.changes) {
      if (!change.moved() || change.told_already) continue;
      entry["changes"].push_back({{"metric", change.metric->name()},
                                  {"where", where_in_words(*run.now, change.where)},
                                  {"unit", change.metric->unit},
                                  {"base", json_number(change.base)},
                                  {"new", json_number(change.now)},
                                  {"budget", change.budget.amount},
                                  {"budget_is_fraction", change.budget.relative},
                                  {"regressed", change.regressed}});
    }
    runs.push_back(std::move(entry));
  }
  const Json json{{"schema", "tilescope.diff/1"},
                  {"regressions", diff.regressions()},
                  {"runs", std::move(runs)},
                  {"new_runs", runs_json(diff.only_now)},
                  {"gone_runs", runs_json(diff.only_base)}};
  return json.dump(2) + "\n";
}

}  // namespace tilescope
