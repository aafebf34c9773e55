// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/metric_sets.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

namespace tilescope {
namespace {

const MetricSet* find_set(const std::string& name) {
  const auto& sets = metric_sets();
  const auto set = std::ranges::find(sets, name, &MetricSet::name);
  return set == sets.end() ? nullptr : &*set;
}

const Metric* find_metric(std::string_view name) {
  const auto& metrics = all_metrics();
  const auto metric = std::ranges::find(metrics, name, &Metric::name);
  return metric == metrics.end() ? nullptr : &*metric;
}

std::vector<std::string> every_name(const MetricCatalogue& chip) {
  std::vector<std::string> names;
  for (const MetricSet& set : metric_sets()) names.emplace_back(set.name);
  for (const Metric& metric : all_metrics()) names.emplace_back(metric.name);
  for (const std::string& base : chip.base_names()) {
    names.push_back(base);
    names.push_back(base + ".sum");
  }
  return names;
}

class Chooser {
 public:
  explicit Chooser(const MetricCatalogue& chip) : chip_(chip) {}

  void add(const std::string& name) {
    if (const MetricSet* set = find_set(name)) {
      for (const std::string_view metric : set->metrics) add_metric(*find_metric(metric));
    } else if (const Metric* metric = find_metric(name)) {
      add_metric(*metric);
    } else if (chip_.has(name)) {
      add_counter(name);
    } else {
      throw UnknownMetric(name, chip_.chip(), every_name(chip_));
    }
  }

  MetricChoice take() { return std::move(choice_); }

 private:
  void add_metric(const Metric& metric) {
    const auto same = [&](const MetricChoice::Chosen& chosen) { return chosen.metric == &metric; };
    if (std::ranges::any_of(choice_.metrics, same)) return;
    const auto on_chip = [this](const Formula& formula) {
      return std::ranges::all_of(formula,
                                 [this](const Term& term) { return chip_.has(std::string(term.counter)); });
    };
    const auto formula = std::ranges::find_if(metric.formulas, on_chip);
    if (formula == metric.formulas.end()) {
      choice_.missing.push_back(&metric);
      return;
    }
    choice_.metrics.push_back({&metric, &*formula});
    for (const Term& term : *formula) add_counter(std::string(term.counter));
  }

  void add_counter(const std::string& counter) {
    auto& counters = choice_.counters;
    if (std::ranges::find(counters, counter) == counters.end()) counters.push_back(counter);
  }

  const MetricCatalogue& chip_;
  MetricChoice choice_;
};

/// A metric with its counters, or a counter that was asked for by itself.
MetricChoice single(const MetricChoice::Chosen& chosen) {
  MetricChoice choice;
  choice.metrics.push_back(chosen);
  for (const Term& term : *chosen.formula) choice.counters.emplace_back(term.counter);
  return choice;
}

std::vector<MetricChoice> singles(const MetricChoice& choice) {
  std::vector<MetricChoice> result;
  std::set<std::string> used;
  for (const MetricChoice::Chosen& chosen : choice.metrics) {
    result.push_back(single(chosen));
    used.insert(result.back().counters.begin(), result.back().counters.end());
  }
  for (const std::string& counter : choice.counters) {
    if (!used.count(counter)) result.push_back({{}, {}, {counter}});
  }
  return result;
}

MetricChoice together(MetricChoice one, const MetricChoice& other) {
  one.metrics.insert(one.metrics.end(), other.metrics.begin(), other.metrics.end());
  for (const std::string& counter : other.counters) {
    const auto& counters = one.counters;
    if (std::ranges::find(counters, counter) == counters.end()) one.counters.push_back(counter);
  }
  return one;
}

}  // namespace

std::string to_string(const Formula& formula) {
  std::string text;
  for (const Term& term : formula) {
    if (!text.empty()) text += term.factor < 0 ? " - " : " + ";
    const int times = text.empty() ? term.factor : std::abs(term.factor);
    if (times != 1) text += std::to_string(times) + " * ";
    text += term.counter;
  }
  return text;
}

std::optional<double> evaluate(const Formula& formula, const CounterValues& values) {
  double sum = 0;
  for (const Term& term : formula) {
    const auto value = values.find(std::string(term.counter));
    if (value == values.end()) return std::nullopt;
    sum += term.factor * value->second;
  }
  return sum;
}

std::map<std::string, double> MetricChoice::evaluate(const CounterValues& values) const {
  std::map<std::string, double> result;
  for (const Chosen& chosen : metrics) {
    if (const auto value = tilescope::evaluate(*chosen.formula, values)) {
      result.emplace(chosen.metric->name, *value);
    }
  }
  return result;
}

UnknownMetric::UnknownMetric(std::string name, const std::string& chip, std::vector<std::string> known)
    : BadInput("metric", name,
               "must be a metric set, a metric, or a counter of " + chip + " with its rollup"),
      name_(std::move(name)),
      known_(std::move(known)) {}

std::string names_of_missing(const MetricChoice& choice) {
  std::string names;
  for (const Metric* metric : choice.missing)
    names += (names.empty() ? "" : ", ") + std::string(metric->name);
  return names;
}

std::vector<MetricChoice> split_by_pass(const MetricChoice& choice, const MetricCatalogue& chip) {
  std::vector<MetricChoice> parts;
  for (const MetricChoice& one : singles(choice)) {
    bool placed = false;
    for (MetricChoice& part : parts) {
      MetricChoice larger = together(part, one);
      if (chip.passes(larger.counters) > 1) continue;
      part = std::move(larger);
      placed = true;
      break;
    }
    if (!placed) parts.push_back(one);
  }
  return parts;
}

MetricChoice choose_metrics(const std::string& request, const MetricCatalogue& chip) {
  Chooser chooser(chip);
  std::istringstream names(request);
  for (std::string name; std::getline(names, name, ',');) chooser.add(name);
  return chooser.take();
}

}  // namespace tilescope
