// SPDX-License-Identifier: Apache-2.0
// `tilescope diff BASE NEW`: what moved between two records, and whether it moved too far. A gate for CI.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/explain/difference.hpp"
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/nearest_names.hpp"
#include "common/number_format.hpp"
#include "profiler/records/json_fields.hpp"

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

/// Of a run that both have, what moved and what is gone, a row each.
std::vector<std::vector<std::string>> rows_of(const RunChange& run) {
  std::vector<std::vector<std::string>> rows;
  for (const MetricChange& change : run.changes) {
    if (!change.moved()) continue;
    const auto [base, now] = format_pair(change);
    rows.push_back({change.metric->name(), where_in_words(*run.now, change.where), base, now,
                    format_change(change), format_budget(change), change.regressed ? "REGRESSION" : ""});
  }
  for (const GoneMetric& gone : run.gone) {
    rows.push_back({gone.metric->name(), where_in_words(*run.now, gone.where), gone.reason});
  }
  return rows;
}

/// Why the bytes of a run moved, a sentence a direction; empty where nothing of it can be taken apart.
std::vector<std::string> explanations(const RunChange& run) {
  const auto moved = [](const MetricChange& change) { return change.moved() && change.metric->unit == "B"; };
  if (std::none_of(run.changes.begin(), run.changes.end(), moved) && run.gone.empty()) return {};
  const Kernel* kernel = nullptr;
  for (const Kernel* known : all_kernels()) {
    if (known->name == run.now->kernel) kernel = known;
  }
  std::vector<std::string> sentences;
  if (kernel == nullptr || without_problem(*run.now)) return sentences;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const std::string why =
        why_different({"BASE", kernel, run.base}, {"NEW", kernel, run.now}, direction, nullptr);
    if (!why.empty()) sentences.push_back(fmt::format("{}: {}", to_string(direction), why));
  }
  if (sentences.empty()) {
    sentences.push_back(
        "a record holds bytes that this version's tile programs do not move: simulate both again");
  }
  return sentences;
}

std::string summary_line(const RecordDiff& diff, bool allow_gone) {
  std::size_t compared = 0, moved = 0, lost = 0;
  for (const RunChange& run : diff.common) {
    compared += run.changes.size();
    lost += run.gone.size();
    for (const MetricChange& change : run.changes) moved += change.moved() ? 1 : 0;
  }
  return fmt::format("{} in both, {} new, {} gone; {} compared, {} moved, {} gone: {}\n",
                     counted(diff.common.size(), "run"), diff.only_now.size(), diff.only_base.size(),
                     counted(compared, "value"), moved, lost, verdict(diff, allow_gone));
}

std::string as_text(const RecordDiff& diff, bool allow_gone, bool explain) {
  std::string text;
  for (const RunChange& run : diff.common) {
    std::vector<std::vector<std::string>> rows = rows_of(run);
    if (rows.empty()) continue;
    for (std::vector<std::string>& row : rows) {
      if (row.size() < 4) continue;
      row[2] += " ->";
      row[5] = "budget " + row[5];
    }
    text += run_name(*run.now) + "\n" + align_columns(rows, "  ");
    if (!explain) continue;
    for (const std::string& sentence : explanations(run)) {
      for (const std::string& line : wrap_words(sentence, text_width() - 4)) text += "    " + line + "\n";
    }
  }
  for (const RunEntry* run : diff.only_now) text += "new   " + run_name(*run) + "\n";
  for (const RunEntry* run : diff.only_base) text += "gone  " + run_name(*run) + "\n";
  return text + summary_line(diff, allow_gone);
}

/// For a pull request: the verdict first, then a table a run.
std::string as_markdown(const RecordDiff& diff, bool allow_gone, bool explain) {
  std::string text = fmt::format("**{}**\n\n{}", verdict(diff, allow_gone), summary_line(diff, allow_gone));
  for (const RunChange& run : diff.common) {
    const std::vector<std::vector<std::string>> rows = rows_of(run);
    if (rows.empty()) continue;
    text += fmt::format(
        "\n`{}`\n\n| metric | of | base | new | change | budget | |\n|---|---|---:|---:|---:|---:|---|\n",
        run_name(*run.now));
    for (std::vector<std::string> row : rows) {
      row.resize(7);
      text += fmt::format("| {} |\n", fmt::join(row, " | "));
    }
    if (!explain) continue;
    for (const std::string& sentence : explanations(run)) text += "\n" + sentence + "\n";
  }
  for (const RunEntry* run : diff.only_now) text += fmt::format("\n- new: `{}`\n", run_name(*run));
  for (const RunEntry* run : diff.only_base) text += fmt::format("\n- gone: `{}`\n", run_name(*run));
  return text;
}

struct DiffOptions {
  std::string base, now;
  std::vector<std::string> budgets;
  bool allow_gone = false, explain = false;
  std::string format = "text";
};

int diff(const DiffOptions& options, const CommandContext& context) {
  if (options.format != "text" && options.format != "md")
    throw unknown_name("format", options.format, {"text", "md"});
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
  context.print(options.format == "md" ? as_markdown(diff, options.allow_gone, options.explain)
                                       : as_text(diff, options.allow_gone, options.explain));
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
  add_value(command, "BASE", options->base, "BASE.json", "the record to hold against");
  add_value(command, "NEW", options->now, "NEW.json", "the record to judge");
  add_value(command, "--budget", options->budgets, "METRIC=AMOUNT",
            "allowed increase of a metric (tilescope list metrics), as in dram_read_bytes=5%, "
            "dram_read_bytes=1GB or max_abs=1e-5; may be repeated")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false);
  command.add_flag("--allow-gone", options->allow_gone,
                   "pass although runs or metrics of BASE are not in NEW, or cannot be compared");
  command.add_flag("--explain", options->explain, "why bytes moved: which tensor, and through which choice");
  add_value(command, "--format", options->format, "text|md",
            "text, or Markdown for a pull request; default text");
  show_examples(
      command,
      {{"diff base.json new.json --budget dram_read_bytes=5%", "fails where a run reads more"},
       {"diff base.json new.json --explain --format md", "a comment for a pull request, with the reasons"}});
}

}  // namespace tilescope::cli
