// SPDX-License-Identifier: Apache-2.0
// Two records side by side: which runs both have, what moved in them, and whether it moved too far. What can
// be compared is data: one row a metric, with its unit and how much of an increase is allowed unless the user
// says otherwise.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/records/run_record.hpp"

namespace tilescope {

/// The increase that a metric may show. Less is always better.
struct Budget {
  double amount = 0;     // fraction of the base value (1.0 = 100 %), or an amount in the metric's unit
  bool relative = true;  // which of the two
};

/// One number of a pass, or of a tensor's error.
struct RecordMetric {
  std::string_view account;  // where it stands in the record: "closed_form", "simulated", "measured", ...
  std::string_view key;      // "dram_read_bytes"
  std::string_view unit;
  std::string_view summary;
  Budget budget;
  /// The number in one pass; nothing where the record has none. Null for metrics of a tensor's error.
  std::optional<double> (*of_pass)(const PassRecord&);
  double (*of_error)(const TensorErrorRecord&);

  /// "simulated.dram_read_bytes"
  std::string name() const { return std::string(account) + "." + std::string(key); }
  /// Whether a user's `text` means this metric: its name, its key ("dram_read_bytes") or its account
  /// ("time").
  bool answers_to(std::string_view text) const { return text == name() || text == key || text == account; }
};

std::span<const RecordMetric> record_metrics();

/// A metric's value over all passes of one direction, or of one tensor's error.
struct MetricValue {
  const RecordMetric* metric = nullptr;
  std::string where;  // "forward", "backward", or a tensor: "o", "dq"
  double value = 0;
};

/// All values that a run holds, in the order of record_metrics(). A metric that some pass of a direction
/// lacks is left out: a sum over a part would mislead.
std::vector<MetricValue> metric_values(const RunEntry& run);

/// A user's budget for the metrics that answer to a name.
struct NamedBudget {
  std::string name;
  Budget budget;
  std::string text;  // as it was typed
};

/// Reads "dram_read_bytes=5%", "dram_read_bytes=1GB" or "max_abs=1e-5" (an amount in the metric's unit).
/// @throws BadInput on an unknown metric (naming the nearest) or an amount that is negative or no number
NamedBudget parse_budget(std::string_view text);

/// One metric of one run that has a value in both records.
struct MetricChange {
  const RecordMetric* metric = nullptr;
  std::string where;  // direction or tensor
  double base = 0, now = 0;
  Budget budget;
  bool regressed = false;
  /// Whether another account of the same bytes moved from and to the same numbers, and was judged alike:
  /// formula and simulation agree on SM<->L2 bytes, and one line tells both.
  bool told_already = false;
  bool moved() const;
};

/// One metric of a run that one record alone has, or that cannot be compared.
struct GoneMetric {
  const RecordMetric* metric = nullptr;
  std::string where;
  std::string reason;  // "no longer there", "simulated on h200, now on a100-80gb", "new"
  /// "measured.dram_read_bytes forward"
  std::string name() const { return metric->name() + " " + where; }
};

/// A run that both records hold.
struct RunChange {
  const RunEntry* base = nullptr;
  const RunEntry* now = nullptr;
  std::vector<MetricChange> changes;    // every metric that both have, moved or not
  std::vector<GoneMetric> gone, fresh;  // of the base alone, of the new record alone
};

struct RecordDiff {
  std::vector<RunChange> common;
  std::vector<const RunEntry*> only_base, only_now;
  int regressions() const;
  /// Whether something of the base has no counterpart: a gate that looks at the rest alone lets it pass.
  bool lost_anything() const;
  /// What a gate says. @param allow_gone lets pass what has no counterpart
  bool passes(bool allow_gone) const { return regressions() == 0 && (allow_gone || !lost_anything()); }
};

/// The text of a record of runs, or of one of a command's kernels, as runs.
/// @param source what error messages call the text
/// @throws BadInput as the readers of both, and for one that an interruption left in part
RunRecord comparable_record(const std::string& source, std::string_view text);

/// Matches runs by problem and kernel, and where a record holds several of those, also by the machine that
/// was simulated and, where that leaves several, the tile shapes. Of budgets that fit a metric the most exact
/// name counts (account.key, then key, then account), of equals the last. A value that is no longer finite is
/// a regression whatever the budget. The result points into the records.
/// @param only_budgeted  leaves out the metrics that no budget names
RecordDiff diff_records(const RunRecord& base, const RunRecord& now, const std::vector<NamedBudget>& budgets,
                        bool only_budgeted = false);

/// Refuses records that share no run.
/// @param base, now  what messages call them @throws BadInput with what the nearest runs differ in
void require_common(const RecordDiff& diff, const std::string& base, const std::string& now);

/// Refuses a budget that nothing was held to.
/// @throws BadInput naming the budget, and why its metrics were not compared
void require_compared(const RecordDiff& diff, const std::vector<NamedBudget>& budgets);

/// A change's place as people read it: kernels of a command are told as sums over their launches.
std::string where_in_words(const RunEntry& run, const std::string& where);

/// Schema "tilescope.diff/1": what moved, what is gone, what is new.
std::string to_json_text(const RecordDiff& diff);

}  // namespace tilescope
