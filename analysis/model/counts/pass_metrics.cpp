// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/pass_metrics.hpp"

#include "profiler/counters/metric_sets.hpp"

namespace tilescope {

std::map<std::string, double> pass_metrics(const PassRecord& pass) {
  CounterValues counters;
  for (const auto& [name, value] : pass.counters) {
    counters[name] = std::visit([](auto number) { return static_cast<double>(number); }, value);
  }
  std::map<std::string, double> metrics;
  for (const Metric& metric : all_metrics()) {
    for (const Formula& formula : metric.formulas) {
      const auto value = evaluate(formula, counters);
      if (!value) continue;
      metrics.emplace(metric.name, *value);
      break;
    }
  }
  return metrics;
}

}  // namespace tilescope
