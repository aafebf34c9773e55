// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compare/record_diff.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analysis/records/record_parts.hpp"
#include "common/nearest_names.hpp"
#include "common/quantity.hpp"

namespace tilescope {
namespace {

/// How a run was cut and simulated: what tells runs of the same problem and kernel apart.
std::string variant(const RunEntry& run) {
  std::string text = run.l2.value_or("");
  for (const PassRecord& pass : run.passes) {
    text += fmt::format("{} {}x{}", pass.name, pass.tile.block_m, pass.tile.block_n);
    if (pass.simulated) text += fmt::format(" {} {}", pass.simulated->machine, pass.simulated->l2_bytes);
    text += ";";
  }
  return text;
}

bool same_subject(const RunEntry& a, const RunEntry& b) {
  return a.kernel == b.kernel && a.problem == b.problem && a.pages == b.pages;
}

/// What tells the subjects of two runs apart: "page_size 16, now none".
std::vector<std::string> subject_changes(const RunEntry& base, const RunEntry& now) {
  const auto subject = [](const RunEntry& run) {
    Json fields = problem_json(run.problem);
    fields["kernel"] = run.kernel;
    fields["pages"] = to_string(run.pages);
    return fields;
  };
  const Json was = subject(base), is = subject(now);
  const auto text = [](const Json& fields, const std::string& name) {
    const Json value = fields.value(name, Json());
    return value.is_null() ? "none" : value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::vector<std::string> changes;
  Json names = was;
  names.update(is);
  for (const auto& [name, value] : names.items()) {
    if (text(was, name) != text(is, name))
      changes.push_back(fmt::format("{} {}, now {}", name, text(was, name), text(is, name)));
  }
  return changes;
}

/// What two simulations must share to be compared; null where nothing was simulated.
const SimulatedBytes* cache_of(const RunEntry& run) {
  for (const PassRecord& pass : run.passes) {
    if (pass.simulated) return &*pass.simulated;
  }
  return nullptr;
}

/// Why the simulations of two runs cannot be compared; empty where they can.
std::string other_cache(const RunEntry& base, const RunEntry& now) {
  const SimulatedBytes *was = cache_of(base), *is = cache_of(now);
  if (was == nullptr || is == nullptr) return "";
  if (was->machine != is->machine) {
    return fmt::format("simulated on {}, now on {}", was->machine, is->machine);
  }
  if (was->l2_bytes != is->l2_bytes) {
    return fmt::format("simulated with an L2 of {} B, now of {} B", was->l2_bytes, is->l2_bytes);
  }
  return "";
}

int exactness(const RecordMetric& metric, std::string_view name) {
  return name == metric.name() ? 3 : name == metric.key ? 2 : 1;
}

Budget budget_of(const RecordMetric& metric, const std::vector<NamedBudget>& budgets) {
  Budget chosen = metric.budget;
  int best = 0;
  for (const NamedBudget& named : budgets) {
    if (!metric.answers_to(named.name) || exactness(metric, named.name) < best) continue;
    chosen = named.budget;
    best = exactness(metric, named.name);
  }
  return chosen;
}

bool regressed(double base, double now, Budget budget) {
  if (!std::isfinite(now)) return std::isfinite(base);
  if (!std::isfinite(base)) return false;
  const double allowed = budget.relative ? budget.amount * std::abs(base) : budget.amount;
  return now > base + allowed;
}

/// The value of the same metric and place; null where there is none.
const MetricValue* find_value(const std::vector<MetricValue>& values, const MetricValue& like) {
  const auto found = std::ranges::find_if(values, [&like](const MetricValue& value) {
    return value.metric == like.metric && value.where == like.where;
  });
  return found == values.end() ? nullptr : &*found;
}

/// Those of a run that are judged.
std::vector<MetricValue> judged_values(const RunEntry& run, const std::vector<NamedBudget>& budgets,
                                       bool only_budgeted) {
  std::vector<MetricValue> values = metric_values(run);
  if (!only_budgeted) return values;
  std::erase_if(values, [&budgets](const MetricValue& value) {
    return std::ranges::none_of(
        budgets, [&value](const NamedBudget& budget) { return value.metric->answers_to(budget.name); });
  });
  return values;
}

RunChange compare(const RunEntry& base, const RunEntry& now, const std::vector<NamedBudget>& budgets,
                  bool only_budgeted) {
  RunChange change{&base, &now, {}, {}, {}};
  const std::vector<MetricValue> old_values = judged_values(base, budgets, only_budgeted),
                                 new_values = judged_values(now, budgets, only_budgeted);
  const std::string other = other_cache(base, now);
  for (const MetricValue& old : old_values) {
    const MetricValue* const match = find_value(new_values, old);
    const bool incomparable = old.metric->account == "simulated" && !other.empty();
    if (match == nullptr || incomparable) {
      change.gone.push_back({old.metric, old.where, incomparable ? other : "no longer there"});
      continue;
    }
    const Budget budget = budget_of(*old.metric, budgets);
    MetricChange moved{old.metric,   old.where, old.value,
                       match->value, budget,    regressed(old.value, match->value, budget)};
    moved.told_already = std::ranges::any_of(change.changes, [&moved](const MetricChange& told) {
      return told.metric->key == moved.metric->key && told.where == moved.where && told.base == moved.base &&
             told.now == moved.now && told.regressed == moved.regressed;
    });
    change.changes.push_back(moved);
  }
  for (const MetricValue& value : new_values) {
    if (find_value(old_values, value) == nullptr) change.fresh.push_back({value.metric, value.where, "new"});
  }
  return change;
}

/// Runs of one subject on the same machine's L2, whatever their tiles.
bool same_cache(const RunEntry& a, const RunEntry& b) {
  return same_subject(a, b) && (cache_of(a) == nullptr) == (cache_of(b) == nullptr) &&
         other_cache(a, b).empty();
}

/// The entry of `candidates` that is `wanted`, a run of `base`, in the other record: the one that was cut and
/// simulated alike; else the only one on that machine; else the only one. candidates.end() if there is none.
std::vector<const RunEntry*>::iterator find_match(std::vector<const RunEntry*>& candidates,
                                                  const std::vector<RunEntry>& base, const RunEntry& wanted) {
  const auto exact = std::ranges::find_if(candidates, [&wanted](const RunEntry* run) {
    return same_subject(*run, wanted) && variant(*run) == variant(wanted);
  });
  if (exact != candidates.end()) return exact;
  for (const auto alike : {same_cache, same_subject}) {
    const auto is_alike = [&](const RunEntry& run) { return alike(run, wanted); };
    const auto points_alike = [&](const RunEntry* run) { return alike(*run, wanted); };
    if (std::ranges::count_if(base, is_alike) != 1) continue;
    if (std::ranges::count_if(candidates, points_alike) != 1) continue;
    return std::ranges::find_if(candidates, points_alike);
  }
  return candidates.end();
}

bool has_value(const std::vector<const RunEntry*>& runs, std::string_view name) {
  return std::ranges::any_of(runs, [name](const RunEntry* run) {
    const std::vector<MetricValue> values = metric_values(*run);
    return std::ranges::any_of(values,
                               [name](const MetricValue& value) { return value.metric->answers_to(name); });
  });
}

/// Why no value of the metrics that answer to `name` was compared; empty where some was.
std::string why_not_compared(const RecordDiff& diff, std::string_view name) {
  std::string reason;
  std::vector<const RunEntry*> now = diff.only_now;
  for (const RunChange& run : diff.common) {
    now.push_back(run.now);
    for (const MetricChange& change : run.changes) {
      if (change.metric->answers_to(name)) return "";
    }
    for (const GoneMetric& gone : run.gone) {
      if (reason.empty() && gone.metric->answers_to(name)) reason = gone.reason;
    }
  }
  if (!reason.empty()) return reason;
  if (has_value(diff.only_base, name)) return "the runs of BASE that have it are gone";
  return has_value(now, name) ? "BASE does not have it" : "neither record has it";
}

/// Whether an amount typed with `unit` can be of a metric that answers to `name`.
bool has_unit(std::string_view name, std::string_view unit) {
  return unit.empty() || std::ranges::any_of(record_metrics(), [&](const RecordMetric& metric) {
           return metric.answers_to(name) && metric.unit == unit;
         });
}

}  // namespace

NamedBudget parse_budget(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    throw BadInput("--budget", fmt::format("'{}'", text), "must be METRIC=AMOUNT as in dram_read_bytes=5%");
  }
  NamedBudget named;
  named.text = text;
  named.name = text.substr(0, equals);
  std::vector<std::string> names;
  for (const RecordMetric& metric : record_metrics()) {
    for (const std::string& name : {std::string(metric.account), std::string(metric.key), metric.name()}) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  if (std::ranges::find(names, named.name) == names.end()) {
    throw unknown_name("--budget", named.name, names);
  }
  std::string_view amount = text.substr(equals + 1);
  named.budget.relative = amount.ends_with('%');
  if (named.budget.relative) amount.remove_suffix(1);
  const std::optional<Quantity> quantity = read_quantity(amount);
  if (!quantity || !(quantity->value >= 0) || !std::isfinite(quantity->value) ||
      !has_unit(named.name, quantity->unit)) {
    throw BadInput("--budget", fmt::format("'{}'", text),
                   "the amount must be a percentage as in 5%, or a number in the metric's unit as in 1GB or "
                   "2ms: finite, and at least 0");
  }
  named.budget.amount = quantity->value;
  if (named.budget.relative) named.budget.amount /= 100;
  return named;
}

bool MetricChange::moved() const { return base != now && !(std::isnan(base) && std::isnan(now)); }

int RecordDiff::regressions() const {
  int count = 0;
  for (const RunChange& run : common) {
    for (const MetricChange& change : run.changes) count += change.regressed && !change.told_already ? 1 : 0;
  }
  return count;
}

bool RecordDiff::lost_anything() const {
  return !only_base.empty() ||
         std::ranges::any_of(common, [](const RunChange& run) { return !run.gone.empty(); });
}

RecordDiff diff_records(const RunRecord& base, const RunRecord& now, const std::vector<NamedBudget>& budgets,
                        bool only_budgeted) {
  RecordDiff diff;
  for (const RunEntry& run : now.runs) diff.only_now.push_back(&run);
  for (const RunEntry& run : base.runs) {
    const auto match = find_match(diff.only_now, base.runs, run);
    if (match == diff.only_now.end()) {
      diff.only_base.push_back(&run);
    } else {
      diff.common.push_back(compare(run, **match, budgets, only_budgeted));
      diff.only_now.erase(match);
    }
  }
  return diff;
}

void require_common(const RecordDiff& diff, const std::string& base, const std::string& now) {
  if (!diff.common.empty()) return;
  std::optional<std::vector<std::string>> least;
  for (const RunEntry* run : diff.only_now) {
    if (diff.only_base.empty()) break;
    std::vector<std::string> changes = subject_changes(*diff.only_base.front(), *run);
    if (!least || changes.size() < least->size()) least = std::move(changes);
  }
  const std::string told = !least           ? "a record is empty"
                           : least->empty() ? "several of each, on other tiles or machines"
                                            : fmt::format("{}", fmt::join(*least, "; "));
  throw BadInput("NEW", now,
                 fmt::format("must have a run of the same problem and kernel as BASE = {0}: {1}. `tilescope "
                             "report {0} {2}` lays different problems side by side",
                             base, told, now));
}

void require_compared(const RecordDiff& diff, const std::vector<NamedBudget>& budgets) {
  for (const NamedBudget& budget : budgets) {
    const std::string reason = why_not_compared(diff, budget.name);
    if (reason.empty()) continue;
    throw BadInput(
        "--budget", budget.text,
        fmt::format("must be of a metric that both records have, and was compared zero times: {}", reason));
  }
}

}  // namespace tilescope
