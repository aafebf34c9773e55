// SPDX-License-Identifier: Apache-2.0
// `tilescope diff BASE NEW`: what moved between two records, and whether it moved too far. A gate for CI.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/explain/difference.hpp"
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/files/text_file.hpp"
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
  std::string name = run.kernel + "  " + describe(run.problem);
  for (const PassRecord& pass : run.passes) {
    if (!pass.simulated) continue;
    name += "  simulated on " + pass.simulated->machine;
    break;
  }
  return name + (run.pages == PagePlacement::random ? "  random pages" : "");
}

/// What the gate says, and whether it lets NEW pass.
std::string verdict(const RecordDiff& diff, bool allow_gone) {
  const int regressions = diff.regressions();
  if (regressions > 0) return fmt::format("{} beyond the budget", regressions);
  if (!diff.lost_anything()) return "no regression";
  return allow_gone ? "no regression in what is still there"
                    : "what is gone cannot be judged (--allow-gone lets it pass)";
}

std::string verdict_word(const MetricChange& change) {
  return change.regressed ? "REGRESSION" : change.now < change.base ? "gain" : "";
}

/// What one record alone has: a row a metric, and one for all of a direction or tensor of which nothing is
/// left to compare, for the same reason.
void add_of_one_record(Table& table, const RunChange& run, const std::vector<GoneMetric>& metrics) {
  std::vector<std::string> told;
  for (const GoneMetric& metric : metrics) {
    const bool known =
        std::ranges::any_of(run.changes, [&](const auto& change) { return change.where == metric.where; });
    const auto all = std::ranges::count_if(metrics, [&metric](const GoneMetric& other) {
      return other.where == metric.where && other.reason == metric.reason;
    });
    const std::string place = metric.where + metric.reason;
    if (!known && std::ranges::find(told, place) != told.end()) continue;
    told.push_back(place);
    table.rows.push_back({known || all == 1 ? metric.metric->name() : counted(all, "metric"),
                          where_in_words(*run.now, metric.where), "-", "-", "-", "-",
                          metric.reason == "new" ? "new, judged by nothing" : "gone: " + metric.reason});
  }
}

/// Of a run that both have, what moved, what is gone and what is new, a row each.
Table table_of(const RunChange& run) {
  Table table{.rows = {{"metric", "of", "base", "new", "change", "budget", "verdict"}},
              .indent = "  ",
              .title = run_name(*run.now),
              .keys = {{"run", run_name(*run.now)}, {"kernel", run.now->kernel}}};
  if (!without_problem(*run.now)) table.keys.emplace_back("problem", as_problem(run.now->problem));
  const auto number = [](const std::string& text, double value, std::string_view unit) {
    return as_number(text, value, std::string(unit));
  };
  for (const MetricChange& change : run.changes) {
    if (!change.moved() || change.told_already) continue;
    const auto [base, now] = format_pair(change);
    table.rows.push_back(
        {change.metric->name(), where_in_words(*run.now, change.where),
         number(base, change.base, change.metric->unit), number(now, change.now, change.metric->unit),
         number(format_change(change), (change.now - change.base) / std::abs(change.base), ""),
         format_budget(change), verdict_word(change)});
  }
  add_of_one_record(table, run, run.gone);
  add_of_one_record(table, run, run.fresh);
  return table;
}

/// Why the bytes of a run moved, a sentence a direction; empty where nothing of it can be taken apart.
std::vector<std::string> explanations(const RunChange& run) {
  const auto moved = [](const MetricChange& change) { return change.moved() && change.metric->unit == "B"; };
  if (std::ranges::none_of(run.changes, moved) && run.gone.empty()) return {};
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
  std::size_t compared = 0, moved = 0, lost = 0, fresh = 0;
  for (const RunChange& run : diff.common) {
    lost += run.gone.size();
    fresh += run.fresh.size();
    for (const MetricChange& change : run.changes) {
      compared += 1;
      moved += change.moved() && !change.told_already ? 1 : 0;
    }
  }
  return fmt::format("{} in both, {} new, {} gone; {} compared, {} moved, {} new, {} gone: {}\n",
                     counted(diff.common.size(), "run"), diff.only_now.size(), diff.only_base.size(),
                     counted(compared, "value"), moved, fresh, lost, verdict(diff, allow_gone));
}

/// What was judged, where no kernel ran: a gate should not be taken for one of the user's own code.
std::string what_was_judged(const RecordDiff& diff) {
  for (const RunChange& run : diff.common) {
    for (const MetricChange& change : run.changes) {
      const std::string_view account = change.metric->account;
      if (account != "flops" && account != "closed_form" && account != "simulated") return "";
    }
  }
  return "All of it is by formula and simulation, of TileScope's tile programs: no kernel ran. One of your "
         "own is "
         "judged by records of `tilescope profile --json FILE -- COMMAND` on a GPU, or of `tilescope emulate "
         "KERNEL "
         "--launch LAUNCH.json --json FILE` without one.";
}

Output as_output(const RecordDiff& diff, bool allow_gone, bool explain, TableFormat format) {
  const bool markdown = format == TableFormat::markdown;  // for a pull request: the verdict first
  const std::string summary = summary_line(diff, allow_gone), what = what_was_judged(diff);
  Output output;
  if (markdown) output += fmt::format("**{}**\n\n{}\n", verdict(diff, allow_gone), summary);
  for (const RunChange& run : diff.common) {
    const Table table = table_of(run);
    if (table.rows.size() == 1) continue;
    output += table;
    for (const std::string& sentence : explain ? explanations(run) : std::vector<std::string>()) {
      output += markdown ? sentence + "\n\n" : "    " + wrapped(sentence, "    ");
    }
  }
  const auto name = [&](const char* what, const RunEntry& run) {
    return markdown ? fmt::format("- {}: `{}`\n", what, run_name(run))
                    : folded_line(fmt::format("{:<4}  {}", what, run_name(run)), "      ");
  };
  for (const RunEntry* run : diff.only_now) output += name("new", *run);
  for (const RunEntry* run : diff.only_base) output += name("gone", *run);
  if (!markdown) output += wrapped(summary);
  if (!what.empty()) output += markdown ? "\n" + what + "\n" : wrapped(what);
  return output;
}

struct DiffOptions {
  std::string base, now;
  std::vector<std::string> budgets;
  bool allow_gone = false, explain = false, only = false;
};

int diff(const DiffOptions& options, const CommandContext& context) {
  if (options.only && options.budgets.empty())
    throw BadInput("--only", "given", "must stand with --budget, which says of which metrics");
  std::vector<NamedBudget> budgets;
  for (const std::string& text : options.budgets) budgets.push_back(parse_budget(text));
  for (const auto& [path, field] : {std::pair(options.base, "BASE"), std::pair(options.now, "NEW")}) {
    if (path.empty())
      throw BadInput(fmt::format("{} is missing, the path of a record; see tilescope diff --help", field));
  }
  const RunRecord base = comparable_record(options.base, read_text_file(options.base));
  const RunRecord now = comparable_record(options.now, read_text_file(options.now));
  const RecordDiff diff = diff_records(base, now, budgets, options.only);
  require_common(diff, options.base, options.now);
  require_compared(diff, budgets);
  context.write_json(to_json_text(diff));
  context.print(as_output(diff, options.allow_gone, options.explain, context.format));
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
  command.add_flag("--only", options->only, "judge the metrics of --budget alone");
  add_format_option(command, context);
  show_examples(
      command,
      {{"diff base.json new.json --budget dram_read_bytes=5%", "fails where a run reads more"},
       {"diff base.json new.json --explain --format markdown",
        "a comment for a pull request, with the reasons"}},
      "Records of simulate and study judge TileScope's tile programs, on any machine. To judge a kernel "
      "of your own, keep records of `tilescope profile --json FILE -- COMMAND` on a GPU, or of `tilescope "
      "emulate` without one.");
}

}  // namespace tilescope::cli
