// SPDX-License-Identifier: Apache-2.0
// Metrics as data: what each is called, its unit, the counters that it is computed from, and what to beware
// of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/errors.hpp"
#include "profiler/counters/metric_catalogue.hpp"

namespace tilescope {

/// One summand of a formula: factor * counter.
struct Term {
  int factor = 1;
  std::string_view counter;  // with rollup: "dram__bytes_read.sum"
};
using Formula = std::vector<Term>;

struct Metric {
  std::string_view name;          // in records; bytes and clocks carry their unit in it
  std::string_view unit;          // "byte", "ns", "Hz", "%", "op", "warp", or "1" for plain counts
  std::vector<Formula> formulas;  // the first whose counters the chip has is used; names differ between chips
  std::string_view caveat;        // empty if there is none
};

struct MetricSet {
  std::string_view name, summary;
  std::vector<std::string_view> metrics;
};

/// Every metric, each once.
const std::vector<Metric>& all_metrics();
/// `traffic` (the default), `warp`, `tensor`, `roofline`, `shared`, and `all` of them.
const std::vector<MetricSet>& metric_sets();

/// "smsp__x.sum + 2 * smsp__y.sum"
std::string to_string(const Formula& formula);

using CounterValues = std::map<std::string, double>;

/// The value of a formula; nothing if a counter is missing.
std::optional<double> evaluate(const Formula& formula, const CounterValues& values);

/// A name that is no metric set, no metric and no counter of the chip.
class UnknownMetric : public BadInput {
 public:
  UnknownMetric(std::string name, const std::string& chip, std::vector<std::string> known);
  const std::string& name() const { return name_; }
  const std::vector<std::string>& known() const { return known_; }  // every name there is

 private:
  std::string name_;
  std::vector<std::string> known_;
};

/// A request resolved for one chip.
struct MetricChoice {
  struct Chosen {
    const Metric* metric;
    const Formula* formula;
  };
  std::vector<Chosen> metrics;
  std::vector<const Metric*> missing;  // of the sets asked for, those that the chip has no counters for
  std::vector<std::string> counters;   // all that must be collected, each once, in order of appearance

  /// Metrics by name, from the values of the counters.
  std::map<std::string, double> evaluate(const CounterValues& values) const;
};

/// @param request names of sets, metrics or counters, with commas: "traffic,sm__inst_executed.sum"
/// @throws UnknownMetric for a name that is none of them
MetricChoice choose_metrics(const std::string& request, const MetricCatalogue& chip);

/// Names of MetricChoice::missing, with commas.
std::string names_of_missing(const MetricChoice& choice);

/// Cuts a choice into parts whose counters fit in one pass each. A metric stays whole: one that needs several
/// passes by itself is a part of its own.
std::vector<MetricChoice> split_by_pass(const MetricChoice& choice, const MetricCatalogue& chip);

}  // namespace tilescope
