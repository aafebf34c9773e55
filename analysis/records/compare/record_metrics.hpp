// SPDX-License-Identifier: Apache-2.0
// What can be compared between two records, as data: one row a metric, with its unit and how much of an
// increase is allowed unless the user says otherwise.
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

}  // namespace tilescope
