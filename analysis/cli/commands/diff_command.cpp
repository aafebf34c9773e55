// SPDX-License-Identifier: Apache-2.0
// `tilescope diff BASE NEW`: what moved between two records, and whether it moved too far. A gate for CI.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/records/json_fields.hpp"
#include "analysis/records/kernel_runs.hpp"
#include "analysis/records/record_diff.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::string format_value(const RecordMetric& metric, double value) {
  if (metric.unit == "B") return format_bytes(value);
  if (metric.unit == "s") return format_seconds(value);
  if (metric.unit == "FLOP") return format_flops(value);
  return format_number(value);
}

/// Both values in the metric's unit, to the last digit when fewer would not tell them apart.
std::pair<std::string, std::string> format_pair(const MetricChange& change) {
  const std::pair rounded(format_value(*change.metric, change.base),
                          format_value(*change.metric, change.now));
  if (rounded.first != rounded.second) return rounded;
  return {fmt::format("{}", change.base), fmt::format("{}", change.now)};
}

/// "+1.25 %", or nothing where a ratio means nothing.
std::string format_change(const MetricChange& change) {
  const double percent = 100 * (change.now - change.base) / std::abs(change.base);
  if (!std::isfinite(percent)) return "";
  return std::abs(percent) < 0.1 ? fmt::format("{:+.1e} %", percent) : fmt::format("{:+.2f} %", percent);
}

std::string format_budget(const MetricChange& change) {
  if (change.budget.relative) return fmt::format("{:g} %", 100 * change.budget.amount);
  return "+" + format_value(*change.metric, change.budget.amount);
}

std::string run_name(const RunEntry& run) {
  if (without_problem(run)) return run.kernel;
  return run.kernel + "  " + describe(run.problem) +
         (run.pages == PagePlacement::random ? "  random pages" : "");
}

/// What the gate says, and whether it lets NEW pass.
std::string verdict(const RecordDiff& diff, bool allow_gone) {
  const int regressions = diff.regressions();
  if (regressions > 0) return fmt::format("{} beyond the budget", regressions);
  if (!diff.lost_anything()) return "no regression";
  return allow_gone ? "no regression in what is still there"
                    : "what is gone cannot be judged (--allow-gone lets it pass)";
}

std::string as_text(const RecordDiff& diff, bool allow_gone) {
  std::string text;
  std::size_t compared = 0, moved = 0, lost = 0;
  for (const RunChange& run : diff.common) {
    std::vector<std::vector<std::string>> rows;
    compared += run.changes.size();
    for (const MetricChange& change : run.changes) {
      if (!change.moved()) continue;
      ++moved;
      const auto [base, now] = format_pair(change);
      rows.push_back({change.metric->name(), where_in_words(*run.now, change.where), base + " ->", now,
                      format_change(change), "budget " + format_budget(change),
                      change.regressed ? "REGRESSION" : ""});
    }
    for (const GoneMetric& gone : run.gone) {
      rows.push_back({gone.metric->name(), where_in_words(*run.now, gone.where), gone.reason});
      ++lost;
    }
    if (!rows.empty()) text += run_name(*run.now) + "\n" + align_columns(rows, "  ");
  }
  for (const RunEntry* run : diff.only_now) text += "new   " + run_name(*run) + "\n";
  for (const RunEntry* run : diff.only_base) text += "gone  " + run_name(*run) + "\n";
  return text + fmt::format("{} runs in both, {} new, {} gone; {} values compared, {} moved, {} gone: {}\n",
                            diff.common.size(), diff.only_now.size(), diff.only_base.size(), compared, moved,
                            lost, verdict(diff, allow_gone));
}

struct DiffOptions {
  std::string base, now;
  std::vector<std::string> budgets;
  bool allow_gone = false;
};

int diff(const DiffOptions& options, const CommandContext& context) {
  std::vector<NamedBudget> budgets;
  for (const std::string& text : options.budgets) budgets.push_back(parse_budget(text));
  for (const auto& [path, field] : {std::pair(options.base, "BASE"), std::pair(options.now, "NEW")}) {
    if (path.empty()) throw BadInput(field, "''", "must be the path of a record; see --help");
  }
  const RunRecord base = comparable_record(options.base, read_text_file(options.base));
  const RunRecord now = comparable_record(options.now, read_text_file(options.now));
  const RecordDiff diff = diff_records(base, now, budgets);
  if (diff.common.empty()) {
    throw BadInput("NEW", options.now,
                   "must have a run of the same problem and kernel as BASE = " + options.base);
  }
  require_compared(diff, budgets);
  context.write_json(to_json_text(diff));
  context.print(as_text(diff, options.allow_gone));
  return diff.passes(options.allow_gone) ? kFine : kCheckFailed;
}

}  // namespace

void add_diff_command(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App& command = add_command(
      app, context, "diff",
      "what moved between two records, of runs or of a command's kernels; fails on a regression, and on "
      "what is gone",
      [options, &context] { return diff(*options, context); });
  command.add_option("BASE", options->base, "the record to hold against");
  command.add_option("NEW", options->now, "the record to judge");
  command
      .add_option("--budget", options->budgets,
                  "allowed increase of a metric (tilescope list metrics), as in dram_read_bytes=5% or "
                  "max_abs=1e-5; may be repeated")
      ->type_name("METRIC=AMOUNT")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false);
  command.add_flag("--allow-gone", options->allow_gone,
                   "pass although runs or metrics of BASE are not in NEW, or cannot be compared");
}

}  // namespace tilescope::cli
