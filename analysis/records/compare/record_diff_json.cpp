// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_schemas.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kDiffSchema = "tilescope.diff/1";

// The file, in which a run is named by its kernel and its problem in words.

struct RunName {
  std::string kernel;
  std::optional<std::string> problem, pages;
};

struct ChangedMetric {
  std::string metric, where, unit;
  double base = 0, now = 0;
  Budget budget;
  bool regressed = false;
};

struct ChangedRun {
  RunName run;
  std::vector<std::string> gone, fresh;
  std::vector<ChangedMetric> changes;
};

struct DiffFile {
  int regressions = 0;
  std::vector<ChangedRun> runs;
  std::vector<RunName> new_runs, gone_runs;
};

}  // namespace

template <typename Fields>
static void list(Fields& fields, const RunName& run) {
  fields.required("kernel", Text{}, run.kernel);
  fields.optional("problem", Text{}, run.problem);
  fields.optional("pages", Text{}, run.pages);
}

template <typename Fields>
static void list(Fields& fields, const ChangedMetric& change) {
  fields.required("metric", Text{}, change.metric);
  fields.required("where", Text{}, change.where);
  fields.required("unit", Text{}, change.unit);
  fields.required("base", Number{}, change.base);
  fields.required("new", Number{}, change.now);
  fields.required("budget", Distance{}, change.budget.amount);
  fields.required("budget_is_fraction", Flag{}, change.budget.relative);
  fields.required("regressed", Flag{}, change.regressed);
}

template <typename Fields>
static void list(Fields& fields, const ChangedRun& run) {
  list(fields, run.run);
  fields.items("gone", Text{}, run.gone);
  fields.items("new", Text{}, run.fresh);
  fields.items("changes", Part<ChangedMetric>{}, run.changes);
}

template <typename Fields>
static void list(Fields& fields, const DiffFile& diff) {
  fields.required("regressions", kCount, diff.regressions);
  fields.items("runs", Part<ChangedRun>{}, diff.runs);
  fields.items("new_runs", Part<RunName>{}, diff.new_runs);
  fields.items("gone_runs", Part<RunName>{}, diff.gone_runs);
}

RunRecord comparable_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const bool kernels = require_kind(source, json, {kRunSchema, kKernelsSchema}) == kKernelsSchema;
  if (kernels) return runs_of(parse_kernel_record(source, text));
  RunRecord record = parse_run_record(source, text);
  if (record.missing.empty()) return record;
  throw BadInput("record", source,
                 fmt::format("must be whole: an interruption left out {} of its measurements, first {}",
                             record.missing.size(), record.missing.front()));
}

std::string where_in_words(const RunEntry& run, const std::string& where) {
  return without_problem(run) ? "all launches" : where;
}

namespace {

RunName name_of(const RunEntry& run) {
  RunName name{run.kernel, std::nullopt, std::nullopt};
  if (!without_problem(run)) name.problem = describe(run.problem);
  if (run.pages == PagePlacement::random) name.pages = to_string(run.pages);
  return name;
}

std::vector<RunName> names_of(const std::vector<const RunEntry*>& runs) {
  std::vector<RunName> names;
  for (const RunEntry* run : runs) names.push_back(name_of(*run));
  return names;
}

ChangedRun changed_run(const RunChange& run) {
  ChangedRun changed{name_of(*run.now), {}, {}, {}};
  for (const GoneMetric& gone : run.gone) changed.gone.push_back(gone.name() + ": " + gone.reason);
  for (const GoneMetric& fresh : run.fresh) changed.fresh.push_back(fresh.name());
  for (const MetricChange& change : run.changes) {
    if (!change.moved() || change.told_already) continue;
    changed.changes.push_back({change.metric->name(), where_in_words(*run.now, change.where),
                               std::string(change.metric->unit), change.base, change.now, change.budget,
                               change.regressed});
  }
  return changed;
}

}  // namespace

Json diff_record_schema() { return record_schema<DiffFile>(kDiffSchema); }

std::string to_json_text(const RecordDiff& diff) {
  DiffFile file{diff.regressions(), {}, names_of(diff.only_now), names_of(diff.only_base)};
  for (const RunChange& run : diff.common) file.runs.push_back(changed_run(run));
  return record_json(kDiffSchema, file).dump(2) + "\n";
}

}  // namespace tilescope
